//! A session with the store: a token, which is given back if this run has made it.

use pgseal_plugin::files::Readers;
use pgseal_plugin::{Failure, Fault, configuration};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::failures::of_status;
use crate::files::{self, Token};
use crate::http::{Client, Path};
use crate::place::Place;
use crate::reply::Reply;
use crate::settings::{Settings, environment_token};
use crate::uri::Login;

/// A session. A token that this run has made by a login is revoked on drop; one that the
/// administrator gave stays.
pub(crate) struct Session {
    client: Client,
    token: Token,
    is_own: bool,
}

/// The answer to a login.
#[derive(Deserialize)]
struct Granted<'a> {
    #[serde(borrow)]
    auth: Option<Auth<'a>>,
}

#[derive(Deserialize)]
struct Auth<'a> {
    client_token: &'a str,
    #[serde(default)]
    token_type: &'a str,
}

/// What `sys/health` says, to everybody.
#[derive(Deserialize)]
struct Health {
    version: String,
}

impl Session {
    /// Logs in.
    pub(crate) fn open(settings: &Settings) -> Result<Session, Failure<'static>> {
        let client = Client::new(settings)?;
        let (token, is_own) = match &settings.login {
            Login::Environment => (environment_token()?, false),
            Login::Token(path) => (files::credential("token-file", path, Readers::Owner)?, false),
            Login::AppRole { mount, role_id, secret_id } => {
                #[derive(Serialize)]
                struct Body<'a> {
                    role_id: &'a str,
                    secret_id: &'a str,
                }
                let secret_id = files::credential("secret-id-file", secret_id, Readers::Owner)?;
                log_in(&client, mount, &Body { role_id, secret_id: &secret_id })?
            }
            Login::Jwt { mount, role, jwt } => {
                #[derive(Serialize)]
                struct Body<'a> {
                    role: &'a str,
                    jwt: &'a str,
                }
                let jwt = files::credential("jwt-file", jwt, Readers::Any)?;
                log_in(&client, mount, &Body { role, jwt: &jwt })?
            }
            Login::Certificate { mount, role } => {
                #[derive(Serialize)]
                struct Body<'a> {
                    #[serde(skip_serializing_if = "Option::is_none")]
                    name: Option<&'a str>,
                }
                log_in(&client, mount, &Body { name: role.as_deref() })?
            }
        };
        Ok(Session { client, token, is_own })
    }

    /// The store for people: its product and version if it tells them, and its address.
    pub(crate) fn store(&self) -> String {
        let path = Path::word("sys/health").global();
        // The version is for people; the store works without saying it.
        let health: Option<Health> =
            self.client.get(None, &path).ok().and_then(|reply| reply.json_if_any());
        let printable = |c: &char| c.is_ascii_graphic();
        let version = health.map(|health| -> String {
            health.version.chars().filter(printable).take(32).collect()
        });
        match version.filter(|version| !version.is_empty()) {
            Some(version) => format!("{} (version {version})", self.client.shown()),
            None => self.client.shown(),
        }
    }

    /// `GET`, with the token.
    pub(crate) fn get(&self, path: &Path<'_>) -> Result<Reply, Failure<'static>> {
        self.client.get(Some(&self.token), path)
    }

    /// `POST` of JSON, with the token.
    pub(crate) fn post(
        &self,
        path: &Path<'_>,
        body: &impl Serialize,
    ) -> Result<Reply, Failure<'static>> {
        self.client.post(Some(&self.token), path, &json(body)?)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_own {
            self.client.last();
            // If this fails, the token ends with its time to live.
            let _ =
                self.client.post(Some(&self.token), &Path::word("auth/token/revoke-self"), b"{}");
        }
    }
}

/// The token of a login, and whether it can be revoked.
fn log_in(
    client: &Client,
    mount: &Place,
    body: &impl Serialize,
) -> Result<(Token, bool), Failure<'static>> {
    let path = Path::word("auth").place(mount).then("login");
    let reply = client.post(None, &path, &json(body)?)?;
    if !reply.is_ok() {
        return Err(login_failed(&reply));
    }
    let granted: Granted<'_> = reply.json()?;
    let auth = granted.auth.ok_or_else(|| reply.not_understood())?;
    // A batch token cannot be revoked.
    Ok((Zeroizing::new(auth.client_token.to_owned()), auth.token_type != "batch"))
}

/// Whose fault it is that a login fails: what no other reason explains is that of the credentials.
fn login_failed(reply: &Reply) -> Failure<'static> {
    let said = reply.errors();
    // The method of certificates gives 500 for one that it does not like.
    let is_certificate = reply.status == 500 && said.contains("certificate");
    match reply.status {
        _ if is_certificate || matches!(reply.status, 400 | 401 | 403) => Failure::new(
            Fault::Refused,
            format!(
                "{}: the login fails ({said}). Check the role and the credential in its file: it \
                 may be wrong, expired or used up",
                reply.asked
            ),
        ),
        _ => of_status(reply, "update"),
    }
}

/// JSON in a buffer that is wiped, and that never grows.
fn json(body: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, Failure<'static>> {
    const MAX_LEN: usize = 128 << 10;
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_LEN));
    serde_json::to_writer(&mut *text, body)
        .map_err(|_| configuration("the request cannot be written as JSON"))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_fails_is_not_tried_again() {
        let failed = |status, said: &str| {
            let body = format!("{{\"errors\":[\"{said}\"]}}");
            login_failed(&Reply::for_test(status, "auth/approle/login", &body)).kind
        };
        assert_eq!(failed(400, "invalid role or secret ID"), Fault::Refused);
        assert_eq!(failed(403, "permission denied"), Fault::Refused);
        assert_eq!(failed(500, "failed to verify client's certificate"), Fault::Refused);
        assert_eq!(failed(500, "internal error"), Fault::Unavailable);
        assert_eq!(failed(404, "no handler for route \\\"x\\\""), Fault::Configuration);
        assert_eq!(failed(503, "Vault is sealed"), Fault::Unavailable);
    }
}
