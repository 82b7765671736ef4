//! Copies of one file: from every form to every other form, with damage, and on failing disks.

use pgseal_convert::copy::{Buffers, Copied, Form, Seal, Sink, Source, copy};
use pgseal_convert::page::{PAGE_LEN, PageRule, checksum};
use pgseal_core::storage::fault::{FaultStorage, Plan};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::storage::{Accelerator, Storage};
use pgseal_core::{FileKind, Generation, SealError, SealedOff, Suite, testing};
use proptest::prelude::*;

fn forms() -> Vec<Form> {
    let mut forms = vec![Form::Plain];
    for suite in Suite::ALL.into_iter().filter(|suite| suite.check_approved().is_ok()) {
        for kind in FileKind::ALL {
            let (suite, layout) = suite.for_kind(kind);
            let seal = Seal {
                form: pgseal_core::Form::anywhere(suite, layout),
                generation: Generation(1),
            };
            if !forms.contains(&Form::Sealed(seal)) {
                forms.push(Form::Sealed(seal));
            }
        }
    }
    forms
}

fn transfer<S: Accelerator>(
    from: &S,
    to: &S,
    form: Form,
    rule: Option<PageRule>,
) -> Result<Copied, SealError> {
    let keys = testing::keys();
    let mut source = Source::look(from, &keys)?;
    let sink = Sink::File(to, form);
    let mut progress = |_| Ok::<(), SealError>(());
    copy(&mut source, from, &sink, &keys, rule, &mut Buffers::default(), &mut progress)
}

/// Content with holes: pages of zeros, and an end anywhere.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let chunk = prop_oneof![
        3 => (any::<u8>(), 1_usize..20_000).prop_map(|(byte, len)| {
            (0..len).map(|at| byte.wrapping_add(at.to_le_bytes()[0])).collect::<Vec<u8>>()
        }),
        1 => (1_usize..40_000).prop_map(|len| vec![0; len]),
        1 => (1_usize..6).prop_map(|pages| vec![7; pages * PAGE_LEN]),
    ];
    proptest::collection::vec(chunk, 0..6).prop_map(|chunks| chunks.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn content_survives_two_conversions_and_decryption(
        content in content(),
        first in 0_usize..13,
        second in 0_usize..13,
    ) {
        // Content that begins with the magic number would be taken for a sealed file.
        prop_assume!(!content.starts_with(b"\x89PGSEAL\n"));
        let forms = forms();
        let (first, second) = (forms[first % forms.len()], forms[second % forms.len()]);
        let plain = MemStorage::with(content.clone());
        let (one, two, back) = (MemStorage::default(), MemStorage::default(), MemStorage::default());
        let copied = transfer(&plain, &one, first, None).unwrap();
        prop_assert_eq!(copied.plain_len, content.len() as u64);
        prop_assert_eq!(one.len().unwrap().0, first.len_on_disk(content.len() as u64));
        transfer(&one, &two, second, None).unwrap();
        prop_assert_eq!(two.len().unwrap().0, second.len_on_disk(content.len() as u64));
        transfer(&two, &back, Form::Plain, None).unwrap();
        prop_assert!(*back.bytes() == content);
        if first != Form::Plain && content.len() > 64 {
            let probe = &content[..64];
            if probe.iter().any(|byte| *byte != 0) {
                prop_assert!(!one.bytes().windows(64).any(|window| window == probe));
            }
        }
    }

    #[test]
    fn a_disk_that_fails_is_an_error(
        content in content().prop_filter("something", |content| !content.is_empty()),
        form in 0_usize..13,
        number in 1_u32..4,
        op in prop_oneof![Just("eio@read"), Just("eio@write"), Just("enospc@write")],
    ) {
        let forms = forms();
        let plan: Plan = format!("{op}#{number}").parse().unwrap();
        let from = FaultStorage::new(MemStorage::with(content));
        let to = FaultStorage::new(MemStorage::default());
        if op == "eio@read" { from.arm(plan) } else { to.arm(plan) }
        let result = transfer(&from, &to, forms[form % forms.len()], None);
        let fired = from.struck() + to.struck() > 0;
        prop_assert_eq!(result.is_err(), fired);
    }
}

fn page(block: u32) -> Vec<u8> {
    let mut page = [3; PAGE_LEN];
    page[8..24].fill(0);
    page[12..14].copy_from_slice(&24_u16.to_le_bytes());
    page[14..16].copy_from_slice(&8192_u16.to_le_bytes());
    page[16..18].copy_from_slice(&8192_u16.to_le_bytes());
    let sum = checksum(&page, block);
    page[8..10].copy_from_slice(&sum.to_le_bytes());
    page.to_vec()
}

#[test]
fn a_damaged_page_is_named_and_stays_damaged() {
    let rule = PageRule { checksums: true, first_block: 0 };
    let mut content: Vec<u8> = (0..4).flat_map(page).collect();
    content[2 * PAGE_LEN + 4000] ^= 1;
    let plain = MemStorage::with(content.clone());
    for form in forms().into_iter().skip(1) {
        let (sealed, back) = (MemStorage::default(), MemStorage::default());
        let copied = transfer(&plain, &sealed, form, Some(rule)).unwrap();
        let blocks: Vec<u64> = copied.damaged.blocks().map(|block| block.0).collect();
        assert_eq!(blocks, [2], "{form:?}");
        let copied = transfer(&sealed, &back, Form::Plain, Some(rule)).unwrap();
        assert_eq!(copied.damaged.count(), 1, "{form:?}");
        assert!(*back.bytes() == content, "the damaged page has the same bytes");
    }
}

#[test]
fn a_page_that_does_not_authenticate_becomes_one_that_postgresql_refuses() {
    let rule = PageRule { checksums: true, first_block: 0 };
    let content: Vec<u8> = (0..4).flat_map(page).collect();
    let (suite, layout) = Suite::Aes256Gcm.for_kind(FileKind::Relation);
    let form = Form::Sealed(Seal {
        form: pgseal_core::Form::anywhere(suite, layout),
        generation: Generation(1),
    });
    let (sealed, again, back) =
        (MemStorage::default(), MemStorage::default(), MemStorage::default());
    transfer(&MemStorage::with(content.clone()), &sealed, form, Some(rule)).unwrap();
    let mut byte = [0];
    let off = SealedOff(2 * 8192 + 8192 + 77);
    sealed.read_at(&mut byte, off).unwrap();
    sealed.write_at(&[byte[0] ^ 1], off).unwrap();
    let copied = transfer(&sealed, &again, form, Some(rule)).unwrap();
    assert_eq!(copied.damaged.count(), 1);
    let copied = transfer(&again, &back, Form::Plain, Some(rule)).unwrap();
    assert_eq!(copied.damaged.count(), 1, "the replacement authenticates, but is not a valid page");
    let back = back.bytes();
    assert!(
        back[..PAGE_LEN] == content[..PAGE_LEN] && back[2 * PAGE_LEN..] == content[2 * PAGE_LEN..]
    );
    // In a file that does not consist of pages, damage is an error: nothing replaces the block.
    assert!(matches!(
        transfer(&sealed, &MemStorage::default(), Form::Plain, None),
        Err(SealError::BlockDamaged(block)) if block.0 == 1
    ));
}
