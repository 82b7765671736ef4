//! The vectors of the protocol: each line is accepted or refused as `vectors/provider` says.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of #[test] functions")]

use std::fs;
use std::path::Path;

use pgseal_plugin::{
    AnchorState, Description, Failure, Fault, Operation, Request, Secret, Unwrapped, WrappedKey,
    decode, encode, encode_request,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn vectors(name: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/provider").join(name);
    let text = fs::read_to_string(path).unwrap();
    let all: Vec<_> = text
        .lines()
        .map(|line| line.split_once('\t').unwrap())
        .map(|(word, line)| (word.to_owned(), format!("{line}\n")))
        .collect();
    assert!(all.len() > 10, "{name}");
    all
}

fn kind(fault: Fault) -> String {
    serde_json::to_string(&fault).unwrap().trim_matches('"').to_owned()
}

#[test]
fn requests() {
    for (wanted, line) in vectors("requests.tsv") {
        let found = match Request::decode(line.as_bytes()) {
            Ok(request) => {
                let again = encode_request(&request.uri, &request.operation).unwrap();
                let again = Request::decode(&again).unwrap();
                assert_eq!(format!("{again:?}"), format!("{request:?}"), "{line}");
                "ok".to_owned()
            }
            Err(failure) => kind(failure.kind),
        };
        assert_eq!(found, wanted, "{line}");
    }
}

fn answers<T: DeserializeOwned + Serialize>(name: &str) {
    for (wanted, line) in vectors(name) {
        let found = match decode::<T>(line.as_bytes()) {
            Ok(Ok(ok)) => {
                assert_eq!(*encode(Ok(ok)), line.as_bytes(), "{line}");
                "ok".to_owned()
            }
            Ok(Err(failure)) => kind(failure.kind),
            Err(_) => "broken".to_owned(),
        };
        assert_eq!(found, wanted, "{name}: {line}");
    }
}

#[test]
fn answers_of_each_operation() {
    answers::<Description>("answers-describe.tsv");
    answers::<WrappedKey>("answers-wrap.tsv");
    answers::<Unwrapped>("answers-unwrap.tsv");
    answers::<AnchorState>("answers-anchor-read.tsv");
}

#[test]
fn lines_that_are_not_one_line_are_refused() {
    let good = br#"{"protocol":1,"ok":{"wrapped":"ab","key":"k"}}"#;
    let with = |end: &[u8]| decode::<WrappedKey>(&[&good[..], end].concat()).map(|_| ());
    assert_eq!(with(b"\n"), Ok(()));
    for end in [&b""[..], b"\n\n", b"\n{}\n", b"\r\nx", b"\n ", &[b' '; 20_000]] {
        assert!(with(end).is_err(), "{end:?}");
    }
    let request = br#"{"protocol":1,"uri":"x:y","request":{"operation":"describe"}}"#;
    for end in [&b""[..], b"\n\n", b"\nx\n", &[b' '; 20_000]] {
        let failure = Request::decode(&[&request[..], end].concat()).map(|_| ()).unwrap_err();
        assert_eq!(failure.kind, Fault::Request, "{end:?}");
    }
}

/// Neither a failure nor the debug form of a request or an answer shows a key.
#[test]
fn nothing_shows_a_secret() {
    let hex = "5e".repeat(32);
    let bad = format!("{{\"protocol\":1,\"uri\":\"x:y\",\"request\":{{\"{hex}\":1}}}}\n");
    let failure = Request::decode(bad.as_bytes()).map(|_| ()).unwrap_err();
    assert!(!format!("{failure:?}").contains(&hex[..8]));
    let answer = format!("{{\"protocol\":1,\"ok\":{{\"secret\":\"{hex}\",\"{hex}\":1}}}}\n");
    assert!(!decode::<Unwrapped>(answer.as_bytes()).unwrap_err().contains(&hex[..8]));
    let secret = Secret::init_with(|bytes| {
        bytes.fill(0x5e);
        Ok::<(), ()>(())
    })
    .unwrap();
    assert!(!format!("{:?}", Operation::Wrap { context: [0; 16], secret }).contains("94, 94"));
    let long = encode_request(&"x".repeat(10_000), &Operation::Describe {});
    assert!(long.is_err());
    let failure: Result<(), Failure> = Err(Failure::new(Fault::Wrong, "a \"b\"\n"));
    assert!(encode(failure).iter().filter(|byte| **byte == b'\n').count() == 1);
}
