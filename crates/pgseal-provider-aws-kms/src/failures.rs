//! Whose fault an error of the SDK or of the service is, and what to do next.

use std::error::Error;

use aws_sdk_kms::config::http::HttpResponse;
use aws_sdk_kms::error::{ProvideErrorMetadata, SdkError};
use pgseal_plugin::{Failure, Fault, configuration};

/// The longest text of the service or the SDK in a message.
const MAX_SAID: usize = 240;

/// What the service says, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
struct Said<'a> {
    code: &'a str,
    message: &'a str,
    status: u16,
}

/// The failure for an operation that did not succeed. `right` is what a policy must allow.
pub(crate) fn of_sdk<E>(
    error: &SdkError<E, HttpResponse>,
    key: &str,
    right: &str,
) -> Failure<'static>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match error {
        SdkError::ServiceError(service) => of_service(
            &Said {
                code: service.err().code().unwrap_or("without a code"),
                message: service.err().message().unwrap_or("it does not say why"),
                status: service.raw().status().as_u16(),
            },
            key,
            right,
        ),
        SdkError::TimeoutError(_) => {
            Failure::new(Fault::Unavailable, format!("{key}: AWS KMS gives no answer in time"))
        }
        SdkError::ResponseError(response) => match response.raw().status().as_u16() {
            status @ (401 | 403) => Failure::new(
                Fault::Refused,
                format!(
                    "{key}: access is refused (status {status}); the policy must allow {right}"
                ),
            ),
            _ => configuration(format!("{key}: what answers is not AWS KMS; correct endpoint=")),
        },
        other => of_transport(&chain(other), key),
    }
}

fn of_service(said: &Said<'_>, key: &str, right: &str) -> Failure<'static> {
    let new = |kind, what: &str| {
        let code = line(said.code);
        Failure::new(kind, format!("{key}: {what} ({code}: {})", line(said.message)))
    };
    match said.code {
        "NotFoundException" => new(
            Fault::KeyGone,
            "AWS KMS has no such key in this account and region; correct key= or region=",
        ),
        "DisabledException" => new(Fault::KeyGone, "the key is disabled; enable it"),
        "KMSInvalidStateException" | "KMSInvalidState" => new(
            Fault::KeyGone,
            "the key cannot be used in its state; if it waits for its deletion, cancel that",
        ),
        "InvalidCiphertextException" | "IncorrectKeyException" => {
            new(Fault::Wrong, "the key does not open this, or not for this keyring")
        }
        "AccessDeniedException" | "AccessDenied" => {
            new(Fault::Refused, &format!("the policy must allow {right} on this key"))
        }
        "ExpiredTokenException" | "ExpiredToken" => {
            new(Fault::Refused, "the credentials have expired; renew them")
        }
        "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "SignatureDoesNotMatch"
        | "IncompleteSignature"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException" => {
            new(Fault::Refused, "AWS does not accept the credentials, or the clock is wrong")
        }
        "InvalidKeyUsageException" => {
            new(Fault::Configuration, "the key must be symmetric, to encrypt and decrypt")
        }
        "KeyUnavailableException"
        | "DependencyTimeoutException"
        | "KMSInternalException"
        | "ThrottlingException"
        | "LimitExceededException"
        | "RequestLimitExceeded" => new(Fault::Unavailable, "AWS KMS is busy or fails"),
        "without a code" if matches!(said.status, 401 | 403) => new(
            Fault::Refused,
            &format!("the policy must allow {right} on this key, or the credentials are wrong"),
        ),
        _ if said.status >= 500 => new(Fault::Unavailable, "AWS KMS fails"),
        "without a code" => new(Fault::Configuration, "what answers is not AWS KMS"),
        _ => new(Fault::Configuration, "AWS KMS refuses the request"),
    }
}

/// The failure for a request that got no answer, from what the SDK says of it.
fn of_transport(said: &str, key: &str) -> Failure<'static> {
    let lower = said.to_ascii_lowercase();
    let has = |words: &str| lower.contains(words);
    if has("no providers in chain provided credentials")
        || has("credentials provider was not enabled")
        || has("the credential provider was not enabled")
    {
        return Failure::new(
            Fault::Refused,
            format!(
                "{key}: there are no credentials: neither in the environment, nor in the profile, \
                 nor from the machine's or the container's role"
            ),
        );
    }
    // Before what tells of connections: the credentials may come over one.
    if has("credentials") && !has("timed out") {
        return Failure::new(Fault::Refused, format!("{key}: no credentials: {}", line(said)));
    }
    if has("certificate") || has("corrupt message") {
        return configuration(format!(
            "{key}: TLS fails: {}; for an endpoint with a private authority, name its file in \
             SSL_CERT_FILE",
            line(said)
        ));
    }
    Failure::new(Fault::Unavailable, format!("{key}: no connection to AWS KMS: {}", line(said)))
}

/// An error and its causes, in one text.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if texts.last() != Some(&text) {
            texts.push(text);
        }
        cause = error.source();
    }
    texts.join(": ")
}

/// A text of others: one line, not too long.
fn line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().filter(|c| !c.is_control()).take(MAX_SAID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_fault() {
        for (code, status, kind) in [
            ("NotFoundException", 400, Fault::KeyGone),
            ("DisabledException", 400, Fault::KeyGone),
            ("KMSInvalidStateException", 400, Fault::KeyGone),
            ("InvalidCiphertextException", 400, Fault::Wrong),
            ("IncorrectKeyException", 400, Fault::Wrong),
            ("AccessDeniedException", 400, Fault::Refused),
            ("ExpiredTokenException", 400, Fault::Refused),
            ("UnrecognizedClientException", 400, Fault::Refused),
            ("InvalidKeyUsageException", 400, Fault::Configuration),
            ("ThrottlingException", 400, Fault::Unavailable),
            ("KMSInternalException", 500, Fault::Unavailable),
            ("SomethingNew", 503, Fault::Unavailable),
            ("SomethingNew", 400, Fault::Configuration),
            ("without a code", 403, Fault::Refused),
            ("without a code", 404, Fault::Configuration),
        ] {
            let said = Said { code, message: "a\n b", status };
            let failure = of_service(&said, "alias/pg", "kms:Decrypt");
            assert_eq!(failure.kind, kind, "{code}");
            assert!(failure.message.contains("a b)"), "{}", failure.message);
        }
        let denied = Said { code: "AccessDeniedException", message: "no", status: 400 };
        let failure = of_service(&denied, "alias/pg", "kms:Decrypt");
        assert!(failure.message.contains("must allow kms:Decrypt"), "{}", failure.message);
    }

    #[test]
    fn errors_without_an_answer_have_their_fault() {
        for (said, kind) in [
            (
                "dispatch failure: io error: client error (Connect): tcp connect error: Connection \
              refused",
                Fault::Unavailable,
            ),
            ("dispatch failure: other: no providers in chain provided credentials", Fault::Refused),
            (
                "dispatch failure: io error: invalid peer certificate: UnknownIssuer",
                Fault::Configuration,
            ),
        ] {
            assert_eq!(of_transport(said, "alias/pg").kind, kind, "{said}");
        }
    }
}
