//! The checks of the suite.

use std::thread;
use std::time::{Duration, Instant};

use data_encoding::{BASE64, HEXLOWER, HEXUPPER};
use pgseal_plugin::{
    Anchor, AnchorState, Description, Done, Fault, MAX_ANCHOR_LEN, Operation, decode,
    encode_request,
};

use super::suite::{Check, Suite, Verdict, other_context, random, refused, skipped, timed, told};
use crate::wrapped_kek::WrappedKek;

/// What a plugin reports for a wrapped key that it cannot open.
const NOT_OPENED: [Fault; 1] = [Fault::Wrong];
/// The names of all operations; a plugin may lack the last two.
const OPERATIONS: [&str; 5] = ["describe", "wrap", "unwrap", "anchor-read", "anchor-advance"];

/// How often a store may be busy in a row while others use it, and the pause after that.
const MAX_BUSY: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// All checks. Those after `describe` need it, and those after the first `unwrap` need that.
pub(super) fn all(suite: &Suite, name: &str) -> (Option<Description>, Vec<Check>) {
    let mut described = None;
    let mut checks = vec![timed("describe says what the plugin and its store are", || {
        let found = describe(suite, name)?;
        let detail = format!("{} {}, key {}", found.name, found.version, found.key);
        described = Some(found);
        Ok(detail)
    })];
    let Some(found) = described else {
        checks.push(skipped("wrap and unwrap", "the plugin does not describe itself"));
        return (None, checks);
    };
    checks.push(timed("unwrap gives back what was wrapped", || round_trips(suite)));
    checks.extend(protocol(suite));
    let is_useful = checks.get(1).is_some_and(|check| check.verdict == Verdict::Pass);
    if is_useful {
        checks.extend(keys(suite, &found));
    } else {
        checks.push(skipped("wrapped keys", "the plugin does not unwrap what it wraps"));
    }
    if found.operations.iter().any(|name| name == "anchor-read") {
        checks.push(timed("an anchor only goes forward", || anchors(suite)));
    } else {
        checks.push(skipped("an anchor only goes forward", "the plugin keeps no anchors"));
    }
    (Some(found), checks)
}

fn describe(suite: &Suite, name: &str) -> Result<Description, String> {
    let found: Description = told(suite.ask(&Operation::Describe {})?)?;
    if found.name != name {
        return Err(format!("it calls itself \"{}\"", found.name.escape_debug()));
    }
    for needed in ["describe", "wrap", "unwrap"] {
        if !found.operations.iter().any(|name| name == needed) {
            return Err(format!("it does not list the operation \"{needed}\""));
        }
    }
    if let Some(unknown) = found.operations.iter().find(|name| !OPERATIONS.contains(&name.as_str()))
    {
        return Err(format!("it lists an unknown operation, \"{}\"", unknown.escape_debug()));
    }
    let has = |wanted: &str| found.operations.iter().any(|name| name == wanted);
    if has("anchor-read") != has("anchor-advance") {
        return Err("it lists one operation of anchors without the other".to_owned());
    }
    for (member, text) in
        [("version", &found.version), ("store", &found.store), ("key", &found.key)]
    {
        if text.is_empty() || text.len() > 512 || text.chars().any(char::is_control) {
            return Err(format!("\"{member}\" is empty, too long, or has control characters"));
        }
    }
    Ok(found)
}

fn round_trips(suite: &Suite) -> Result<String, String> {
    let mut slowest = Duration::ZERO;
    let mut longest = 0;
    let mut secrets = [[0; 32], [0xff; 32], [0; 32], [0; 32]];
    for secret in secrets.iter_mut().skip(2) {
        random(secret)?;
    }
    for secret in secrets {
        let mut context = [0; 16];
        random(&mut context)?;
        let wrapped = suite.wrap(context, &secret)?;
        WrappedKek::new(&wrapped).check()?;
        longest = longest.max(wrapped.wrapped.len());
        let start = Instant::now();
        let back = told(suite.unwrap(context, &wrapped.wrapped, &wrapped.key)?)?;
        slowest = slowest.max(start.elapsed());
        if *back.secret.expose() != secret {
            return Err("unwrap gives another key".to_owned());
        }
    }
    Ok(format!("{longest} bytes; unwrap takes up to {} ms", slowest.as_millis()))
}

/// What a plugin must do with requests that pgseal does not send.
fn protocol(suite: &Suite) -> Vec<Check> {
    let done = |_: ()| String::new();
    let answer = |request: &[u8]| {
        let (answer, _) = suite.raw(request);
        decode::<Done>(&answer.map_err(|broken| broken.to_string())?)
    };
    let line = |protocol: u64, request: &str| {
        format!("{{\"protocol\":{protocol},\"uri\":\"{}\",\"request\":{request}}}\n", suite.uri)
    };
    let is_plain = !suite.uri.contains(['"', '\\']);
    let mut checks = Vec::new();
    if is_plain {
        checks.push(timed("a request of another version is refused", || {
            let request = line(2, "{\"operation\":\"describe\"}");
            refused(answer(request.as_bytes()), &[Fault::Request]).map(done)
        }));
        checks.push(timed("an unknown operation is refused", || {
            let request = line(1, "{\"operation\":\"export\"}");
            refused(answer(request.as_bytes()), &[Fault::Unsupported]).map(done)
        }));
    }
    checks.push(timed("what is no request gives no result", || {
        for bad in ["", "\n", "{", "{}\n", "[]\n", "\u{0}\u{1}\n", "{\"protocol\":1}\n"] {
            let (answer, _) = suite.raw(bad.as_bytes());
            // An error status is as good as an answer that reports a failure.
            let Ok(answer) = answer else { continue };
            refused(decode::<Done>(&answer), &[Fault::Request])
                .map_err(|what| format!("after {bad:?}: {what}"))?;
        }
        Ok(String::new())
    }));
    checks.push(timed("a URI that names no key is refused", || {
        let uri = format!("{}:pgseal-conformance=1?pgseal-conformance=1", scheme(&suite.uri));
        let answer = suite.ask_at::<Description>(&uri, &Operation::Describe {});
        refused(answer, &[Fault::Configuration]).map(done)
    }));
    checks
}

fn scheme(uri: &str) -> &str {
    uri.split(':').next().unwrap_or_default()
}

/// What must hold of wrapped keys.
fn keys(suite: &Suite, found: &Description) -> Vec<Check> {
    let mut checks = vec![
        timed("a wrapped key does not show the key", || {
            let sample = suite.sample()?;
            expect_hidden(&sample.answer.wrapped, &sample.secret)?;
            expect_hidden(sample.answer.key.as_bytes(), &sample.secret).map(|()| String::new())
        }),
        timed("standard error does not show the key", || quiet(suite)),
        timed("a changed wrapped key does not open", || changed(suite)),
        timed("a wrapped key of another length does not open", || cut(suite)),
        timed("four runs at the same time do not disturb each other", || parallel(suite)),
    ];
    let name = "a wrapped key does not open in another context";
    checks.push(if found.binds_context {
        timed(name, || {
            let sample = suite.sample()?;
            let other = other_context(sample.context);
            let answer = suite.unwrap(other, &sample.answer.wrapped, &sample.answer.key);
            refused(answer, &NOT_OPENED).map(|()| String::new())
        })
    } else {
        skipped(name, "the plugin says that it does not bind the context")
    });
    checks
}

/// Whether bytes contain a key, as such or as text.
fn expect_hidden(bytes: &[u8], secret: &[u8; 32]) -> Result<(), String> {
    let forms = [
        secret.to_vec(),
        HEXLOWER.encode(secret).into_bytes(),
        HEXUPPER.encode(secret).into_bytes(),
        BASE64.encode(secret).trim_end_matches('=').as_bytes().to_vec(),
    ];
    match forms.iter().any(|form| bytes.windows(form.len()).any(|part| part == form)) {
        true => Err("it shows the key".to_owned()),
        false => Ok(()),
    }
}

fn quiet(suite: &Suite) -> Result<String, String> {
    let sample = suite.sample()?;
    let copy = pgseal_plugin::Secret::init_with(|bytes| {
        bytes.copy_from_slice(&sample.secret[..]);
        Ok::<(), String>(())
    })?;
    let wrap = Operation::Wrap { context: sample.context, secret: copy };
    let unwrap = Operation::Unwrap {
        context: sample.context,
        wrapped: sample.answer.wrapped.clone(),
        key: sample.answer.key.as_str().into(),
    };
    for operation in [&wrap, &unwrap] {
        let (answer, log) = suite.raw(&encode_request(&suite.uri, operation)?);
        answer.map_err(|broken| broken.to_string())?;
        expect_hidden(&log, &sample.secret).map_err(|what| format!("standard error: {what}"))?;
    }
    Ok(String::new())
}

/// Changes one bit of each of up to 24 bytes, spread over the wrapped key.
fn changed(suite: &Suite) -> Result<String, String> {
    let sample = suite.sample()?;
    let len = sample.answer.wrapped.len();
    let step = len.div_ceil(24).max(1);
    let mut tried = 0;
    for at in (0..len).step_by(step) {
        let mut bad = sample.answer.wrapped.clone();
        if let Some(byte) = bad.get_mut(at) {
            *byte ^= 1;
        }
        refused(suite.unwrap(sample.context, &bad, &sample.answer.key), &NOT_OPENED)
            .map_err(|what| format!("byte {at} of {len} changed: {what}"))?;
        tried += 1;
    }
    Ok(format!("{tried} changes"))
}

fn cut(suite: &Suite) -> Result<String, String> {
    let sample = suite.sample()?;
    let whole = &sample.answer.wrapped;
    let half = whole.len() / 2;
    let shorter =
        whole.split_at_checked(whole.len().saturating_sub(1)).map_or(&[][..], |cut| cut.0);
    let longer = [&whole[..], &[0]].concat();
    let start = whole.split_at_checked(half.max(1)).map_or(&[][..], |cut| cut.0);
    for bad in [start, shorter, &longer[..], &[0]] {
        refused(suite.unwrap(sample.context, bad, &sample.answer.key), &NOT_OPENED)
            .map_err(|what| format!("{} bytes instead of {}: {what}", bad.len(), whole.len()))?;
    }
    Ok(String::new())
}

/// A store may be busy for a moment: then the plugin is asked again, as pgseal does.
fn parallel(suite: &Suite) -> Result<String, String> {
    let sample = suite.sample()?;
    let run = || -> Result<u32, String> {
        let mut busy = 0;
        loop {
            let answer =
                suite.unwrap(sample.context, &sample.answer.wrapped, &sample.answer.key)?;
            let is_busy = answer.as_ref().is_err_and(|no| no.kind == Fault::Unavailable);
            if !is_busy || busy == MAX_BUSY {
                return match told(answer)?.secret.expose() == &*sample.secret {
                    true => Ok(busy),
                    false => Err("unwrap gives another key".to_owned()),
                };
            }
            busy += 1;
            thread::sleep(PAUSE);
        }
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        let mut busy = 0;
        for one in all {
            busy += one.join().map_err(|_| "a thread of the suite failed".to_owned())??;
        }
        Ok(if busy == 0 { String::new() } else { format!("the store was busy {busy} times") })
    })
}

/// Sets the anchor of an identity that no cluster has, which stays in the store.
fn anchors(suite: &Suite) -> Result<String, String> {
    let mut context = [0; 16];
    random(&mut context)?;
    let read =
        || -> Result<AnchorState, String> { told(suite.ask(&Operation::AnchorRead { context })?) };
    let advance = |sequence: u64, value: &[u8]| {
        let anchor = Anchor { sequence, value: value.to_vec() };
        suite.ask::<Done>(&Operation::AnchorAdvance { context, anchor })
    };
    if read()?.anchor.is_some() {
        return Err("there is an anchor that nobody has set".to_owned());
    }
    let longest = [0x5a; MAX_ANCHOR_LEN];
    for (sequence, value) in [(1, &[1][..]), (2, &[2, 2][..]), (1 << 40, &longest[..])] {
        told(advance(sequence, value)?)?;
        let wanted = Some(Anchor { sequence, value: value.to_vec() });
        if read()?.anchor != wanted {
            return Err(format!("anchor {sequence} is not read back"));
        }
    }
    for sequence in [1 << 40, 2, 0] {
        refused(advance(sequence, &[9]), &[Fault::Stale])
            .map_err(|what| format!("from {} to {sequence}: {what}", 1u64 << 40))?;
    }
    match read()?.anchor {
        Some(anchor) if anchor.value == longest => Ok(String::new()),
        _ => Err("a refused anchor was stored".to_owned()),
    }
}
