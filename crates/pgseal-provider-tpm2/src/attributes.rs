//! What `tpm2_readpublic` and `tpm2_nvreadpublic` write: YAML, of which only two members matter.

use std::collections::BTreeSet;

/// The names of the attributes of a key or of an NV index: the line `value: a|b` or `friendly: a|b`
/// below `attributes:`.
pub(crate) fn attributes(text: &str) -> BTreeSet<&str> {
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != "attributes:").skip(1);
    let names = lines.next().and_then(|line| {
        let (member, names) = line.split_once(": ")?;
        matches!(member, "value" | "friendly").then_some(names)
    });
    names.unwrap_or_default().split('|').filter(|name| !name.is_empty()).collect()
}

/// The size of an NV index, in bytes: the line `size: N`.
pub(crate) fn size(text: &str) -> Option<usize> {
    text.lines().find_map(|line| line.trim().strip_prefix("size: ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_what_the_tools_write() {
        let nv = "0x1800016:\n  name: 000b\n  hash algorithm:\n    friendly: sha256\n    value: 0xB\n  \
                  attributes:\n    friendly: ownerwrite|no_da\n    value: 0x2021002\n  size: 283\n\n";
        assert_eq!(attributes(nv), BTreeSet::from(["ownerwrite", "no_da"]));
        assert_eq!(size(nv), Some(283));
        let key =
            "name-alg:\n  value: sha256\nattributes:\n  value: restricted|decrypt\n  raw: 0x3\n";
        assert_eq!(attributes(key), BTreeSet::from(["restricted", "decrypt"]));
        for text in ["", "attributes:\n", "attributes:\n  raw: 0x1\n", "x: attributes:"] {
            assert!(attributes(text).is_empty() && size(text).is_none(), "{text}");
        }
    }
}
