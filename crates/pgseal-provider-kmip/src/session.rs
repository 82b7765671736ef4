//! Operations of the store, in a version of KMIP that both know.

use pgseal_plugin::{Failure, Fault, configuration, random};
use zeroize::Zeroizing;

use crate::connection::Connection;
use crate::failures::{not_understood, of_reason};
use crate::id::Id;
use crate::message::{Answer, BLOCK_LEN, Payload, Reason, Request, Version};
use crate::uri::{Target, Uri};

/// Why there is no result.
enum Problem {
    /// The store did nothing, and says why.
    Reason(Reason, String),
    /// Everything else.
    Failure(Failure<'static>),
}

impl From<Problem> for Failure<'static> {
    fn from(problem: Problem) -> Failure<'static> {
        match problem {
            Problem::Reason(reason, asked) => of_reason(&reason, &asked),
            Problem::Failure(failure) => failure,
        }
    }
}

/// A session.
pub(crate) struct Session {
    connection: Connection,
    version: Version,
}

impl Session {
    /// Connects, and agrees on a version.
    pub(crate) fn open(uri: &Uri) -> Result<Session, Failure<'static>> {
        let mut connection = Connection::open(uri)?;
        let version = match uri.version {
            Some(version) => version,
            None => discover(&mut connection)?,
        };
        Ok(Session { connection, version })
    }

    /// The store, for people.
    pub(crate) fn store(&self) -> String {
        format!("KMIP {} at {}", self.version, self.connection.address())
    }

    /// The key that the URI names now.
    pub(crate) fn find(&mut self, target: &Target) -> Result<Id, Failure<'static>> {
        let name = match target {
            Target::Id(id) => return Ok(id.clone()),
            Target::Name(name) => name,
        };
        let address = self.connection.address().to_owned();
        let found = self.ask(&Request::Locate(name), |payload| payload.ids())?;
        match <[Id; 1]>::try_from(found) {
            Ok([id]) => Ok(id),
            Err(found) if found.is_empty() => Err(Failure::new(
                Fault::KeyGone,
                format!(
                    "{address}: the store has no symmetric key named {name}, or does not show it \
                     to this user; correct name="
                ),
            )),
            Err(_) => Err(configuration(format!(
                "{address}: the store has more than one key named {name}; give kmip:id=ID"
            ))),
        }
    }

    /// Encrypts 32 bytes.
    pub(crate) fn encrypt(
        &mut self,
        key: &Id,
        iv: &[u8; BLOCK_LEN],
        data: &[u8; 32],
    ) -> Result<Vec<u8>, Failure<'static>> {
        let own = |payload: Payload<'_>| payload.data().map(<[u8]>::to_vec);
        Ok(self.ask(&Request::Encrypt { key, iv, data }, own)?)
    }

    /// Decrypts what [`Session::encrypt`] returned.
    pub(crate) fn decrypt(
        &mut self,
        key: &Id,
        iv: &[u8; BLOCK_LEN],
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Failure<'static>> {
        match self.ask_to_decrypt(key, iv, data) {
            // The store has a problem, or its key does not fit: what the key encrypts now decides.
            Err(Problem::Reason(reason, asked)) if reason.may_be_wrong_key() => {
                match self.works(key) {
                    Ok(()) => Err(Failure::new(
                        Fault::Wrong,
                        format!("{asked}: the key does not open this ({})", reason.said),
                    )),
                    Err(failure) => Err(failure),
                }
            }
            other => Ok(other?),
        }
    }

    fn ask_to_decrypt(
        &mut self,
        key: &Id,
        iv: &[u8; BLOCK_LEN],
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Problem> {
        let own = |payload: Payload<'_>| payload.data().map(|data| Zeroizing::new(data.to_vec()));
        self.ask(&Request::Decrypt { key, iv, data }, own)
    }

    /// Lets the key encrypt and decrypt random bytes, and fails as that fails.
    pub(crate) fn works(&mut self, key: &Id) -> Result<(), Failure<'static>> {
        let (mut iv, mut data) = ([0; BLOCK_LEN], [0; 32]);
        random(&mut iv)?;
        random(&mut data)?;
        let encrypted = self.encrypt(key, &iv, &data)?;
        let decrypted = self.ask_to_decrypt(key, &iv, &encrypted)?;
        match *decrypted == data {
            true => Ok(()),
            false => Err(configuration(format!(
                "{}: the store decrypts to something else than it encrypted",
                self.connection.address()
            ))),
        }
    }

    fn ask<T>(
        &mut self,
        request: &Request<'_>,
        read: impl FnOnce(Payload<'_>) -> Option<T>,
    ) -> Result<T, Problem> {
        ask(&mut self.connection, self.version, request, read)
    }
}

fn ask<T>(
    connection: &mut Connection,
    version: Version,
    request: &Request<'_>,
    read: impl FnOnce(Payload<'_>) -> Option<T>,
) -> Result<T, Problem> {
    let address = connection.address().to_owned();
    let failed = |failure| Err(Problem::Failure(failure));
    let Some(bytes) = request.encode(version) else {
        return failed(configuration("the request is too long"));
    };
    let content = match connection.exchange(&bytes) {
        Ok(content) => content,
        Err(failure) => return failed(failure),
    };
    match Answer::parse(&content) {
        Some(Answer::Done(payload)) => {
            read(payload).ok_or_else(|| Problem::Failure(not_understood(&address)))
        }
        Some(Answer::Failed(reason)) => {
            let asked = format!("{address}, {} of KMIP {version}", request.name());
            Err(Problem::Reason(reason, asked))
        }
        None => failed(not_understood(&address)),
    }
}

/// The best version that both know.
fn discover(connection: &mut Connection) -> Result<Version, Failure<'static>> {
    let mut answer = None;
    for version in Version::ASKED_IN {
        answer = match ask(connection, version, &Request::DiscoverVersions, |payload| {
            Some(payload.version())
        }) {
            Err(Problem::Reason(reason, asked)) if reason.is_about_version() => {
                Some(Err(of_reason(&reason, &asked)))
            }
            Err(problem) => return Err(problem.into()),
            Ok(version) => {
                return version.ok_or_else(|| {
                    let address = connection.address();
                    configuration(format!(
                        "{address}: the store knows no version of KMIP from 1.2 to 2.1"
                    ))
                });
            }
        };
    }
    answer.unwrap_or_else(|| Err(not_understood(connection.address())))
}
