//! The URI: `vault:key=K;mount=M?address=A&...`, in the form of the URIs of `pkcs11:` (RFC 7512).

use std::path::PathBuf;

use pgseal_plugin::tls::ClientCertificate;
use pgseal_plugin::uri::{absolute, once, shown, texts};
use pgseal_plugin::{Failure, configuration};

use crate::address::Address;
use crate::place::Place;

/// What wraps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A key of a transit engine, which never leaves the store.
    Transit {
        /// Where the engine is.
        mount: Place,
        /// The name of the key.
        key: Place,
    },
    /// A key that the store gives out.
    Stored(Stored),
}

/// A field of a secret of KV version 2, which holds a key of 32 bytes as Base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Where the engine is.
    pub mount: Place,
    /// The path of the secret.
    pub path: Place,
    /// The name of the field.
    pub field: String,
}

/// Where anchors are: secrets of KV version 2, one for each keyring, below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Anchors {
    /// Where the engine is.
    pub mount: Place,
    /// The path above the secrets.
    pub path: Place,
}

/// How to log in, as the URI says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    /// With a token that the environment or the file of the vendor's client has.
    Environment,
    /// With a token in a file.
    Token(PathBuf),
    /// With the method AppRole.
    AppRole { mount: Place, role_id: String, secret_id: PathBuf },
    /// With the method Kubernetes or JWT: a role, and a signed token in a file.
    Jwt { mount: Place, role: String, jwt: PathBuf },
    /// With the method of TLS certificates; without a role, the store looks for one that fits.
    Certificate { mount: Place, role: Option<String> },
}

/// What a URI says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Uri {
    /// What wraps.
    pub target: Target,
    /// The address of the store.
    pub address: Option<Address>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The authorities that may have signed the store's certificate.
    pub ca: Option<PathBuf>,
    /// The certificate for the TLS connection.
    pub certificate: Option<ClientCertificate>,
    /// How to log in.
    pub login: Login,
    /// Where anchors are, if the store keeps any.
    pub anchors: Option<Anchors>,
}

/// The attributes, as they stand in the URI.
#[derive(Default)]
struct Attributes {
    key: Option<Place>,
    secret: Option<Place>,
    field: Option<String>,
    mount: Option<Place>,
    address: Option<Address>,
    namespace: Option<String>,
    ca: Option<PathBuf>,
    token: Option<PathBuf>,
    role_id: Option<String>,
    secret_id: Option<PathBuf>,
    role: Option<String>,
    jwt: Option<PathBuf>,
    chain: Option<PathBuf>,
    chain_key: Option<PathBuf>,
    auth_mount: Option<Place>,
    anchor: Option<Place>,
    anchor_mount: Option<Place>,
}

impl Uri {
    /// Parses a URI. An unknown attribute is an error, because it may be a mistyped one, and each
    /// attribute stands once.
    pub(crate) fn parse(text: &str) -> Result<Uri, Failure<'static>> {
        let rest = text.strip_prefix("vault:").ok_or_else(|| configuration("no vault: URI"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut all = Attributes::default();
        for (name, value) in texts(path, ';')? {
            all.take_path(name, value)?;
        }
        for (name, value) in texts(query, '&')? {
            all.take_query(name, value)?;
        }
        all.check()
    }
}

impl Attributes {
    fn take_path(&mut self, name: &str, value: String) -> Result<(), Failure<'static>> {
        match name {
            "key" => once(&mut self.key, name, Place::name(name, &value)?),
            "secret" => once(&mut self.secret, name, Place::parse(name, &value)?),
            "field" => once(&mut self.field, name, value),
            "mount" => once(&mut self.mount, name, Place::parse(name, &value)?),
            _ => Err(unknown(name)),
        }
    }

    fn take_query(&mut self, name: &str, value: String) -> Result<(), Failure<'static>> {
        match name {
            "address" => once(&mut self.address, name, Address::parse(name, &value)?),
            "namespace" => once(&mut self.namespace, name, header(name, value)?),
            "ca-file" => once(&mut self.ca, name, absolute(name, &value)?),
            "token-file" => once(&mut self.token, name, absolute(name, &value)?),
            "role-id" => once(&mut self.role_id, name, value),
            "secret-id-file" => once(&mut self.secret_id, name, absolute(name, &value)?),
            "role" => once(&mut self.role, name, value),
            "jwt-file" => once(&mut self.jwt, name, absolute(name, &value)?),
            "cert-file" => once(&mut self.chain, name, absolute(name, &value)?),
            "cert-key-file" => once(&mut self.chain_key, name, absolute(name, &value)?),
            "auth-mount" => once(&mut self.auth_mount, name, Place::parse(name, &value)?),
            "anchor" => once(&mut self.anchor, name, Place::parse(name, &value)?),
            "anchor-mount" => once(&mut self.anchor_mount, name, Place::parse(name, &value)?),
            "token" | "secret-id" | "jwt" => Err(configuration(format!(
                "{name}: a credential must not stand in a URI, which is stored and shown; put it \
                 into a file of mode 600, and give {name}-file=/PATH"
            ))),
            _ => Err(unknown(name)),
        }
    }

    /// What the attributes mean together.
    fn check(self) -> Result<Uri, Failure<'static>> {
        let mount = |given: Option<Place>, usual: &str| match given {
            Some(place) => Ok(place),
            None => Place::parse("mount", usual),
        };
        let target = match (self.key, self.secret, self.field) {
            (Some(key), None, None) => {
                Target::Transit { mount: mount(self.mount, "transit")?, key }
            }
            (None, Some(path), field) => Target::Stored(Stored {
                mount: mount(self.mount, "secret")?,
                path,
                field: field.unwrap_or_else(|| "key".to_owned()),
            }),
            _ => {
                return Err(configuration(
                    "name one key: vault:key=NAME (transit engine), or vault:secret=PATH;\
                     field=NAME (KV version 2, where the key leaves the store)",
                ));
            }
        };
        let certificate = match (self.chain, self.chain_key) {
            (Some(chain), Some(key)) => Some(ClientCertificate { chain, key }),
            (None, None) => None,
            _ => return Err(configuration("give both, cert-file and cert-key-file, or neither")),
        };
        let login = match (self.token, (self.role_id, self.secret_id), self.jwt, self.role) {
            (Some(path), (None, None), None, None) if self.auth_mount.is_none() => {
                Login::Token(path)
            }
            (None, (Some(role_id), Some(secret_id)), None, None) => {
                Login::AppRole { mount: mount(self.auth_mount, "approle")?, role_id, secret_id }
            }
            (None, (None, None), Some(jwt), Some(role)) => {
                Login::Jwt { mount: mount(self.auth_mount, "kubernetes")?, role, jwt }
            }
            (None, (None, None), None, role) if certificate.is_some() => {
                Login::Certificate { mount: mount(self.auth_mount, "cert")?, role }
            }
            (None, (None, None), None, None) if self.auth_mount.is_none() => Login::Environment,
            _ => {
                return Err(configuration(
                    "name one way to log in: token-file; role-id and secret-id-file (AppRole); \
                     role and jwt-file (Kubernetes, JWT); or cert-file and cert-key-file",
                ));
            }
        };
        let anchors = match (self.anchor, self.anchor_mount) {
            (Some(path), given) => Some(Anchors { mount: mount(given, "secret")?, path }),
            (None, None) => None,
            (None, Some(_)) => return Err(configuration("anchor-mount needs anchor=PATH")),
        };
        Ok(Uri {
            target,
            address: self.address,
            namespace: self.namespace,
            ca: self.ca,
            certificate,
            login,
            anchors,
        })
    }
}

/// A value that is sent in a header of HTTP.
pub(crate) fn header(name: &str, value: String) -> Result<String, Failure<'static>> {
    match value.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(value),
        false => Err(configuration(format!("{name}: only printable ASCII, without spaces"))),
    }
}

fn unknown(name: &str) -> Failure<'static> {
    configuration(format!(
        "{}: no attribute that this plugin knows here; it takes key or secret, field, mount, and \
         behind the ?: address, namespace, ca-file, token-file, role-id, secret-id-file, role, \
         jwt-file, cert-file, cert-key-file, auth-mount, anchor, anchor-mount",
        shown(name)
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pgseal_plugin::Fault;

    use super::*;

    fn place(text: &str) -> Place {
        Place::parse("x", text).unwrap()
    }

    #[test]
    fn a_whole_uri() {
        let uri = Uri::parse(
            "vault:key=pg-1;mount=team/transit?address=https://v.example:8200&namespace=a/b&\
             ca-file=/etc/ca%20x.pem&role-id=r1&secret-id-file=/etc/sid&auth-mount=pg&\
             cert-file=/c&cert-key-file=/k&anchor=pgseal/anchors&anchor-mount=kv",
        );
        let wanted = Uri {
            target: Target::Transit { mount: place("team/transit"), key: place("pg-1") },
            address: Some(Address::parse("address", "https://v.example:8200").unwrap()),
            namespace: Some("a/b".to_owned()),
            ca: Some(PathBuf::from("/etc/ca x.pem")),
            certificate: Some(ClientCertificate {
                chain: PathBuf::from("/c"),
                key: PathBuf::from("/k"),
            }),
            login: Login::AppRole {
                mount: place("pg"),
                role_id: "r1".to_owned(),
                secret_id: PathBuf::from("/etc/sid"),
            },
            anchors: Some(Anchors { mount: place("kv"), path: place("pgseal/anchors") }),
        };
        assert_eq!(uri.unwrap(), wanted);
    }

    #[test]
    fn each_way_to_log_in() {
        let login = |query: &str| Uri::parse(&format!("vault:key=k?{query}")).unwrap().login;
        assert_eq!(login(""), Login::Environment);
        assert_eq!(login("token-file=/t"), Login::Token(PathBuf::from("/t")));
        let jwt = Login::Jwt {
            mount: place("kubernetes"),
            role: "r".to_owned(),
            jwt: PathBuf::from("/j"),
        };
        assert_eq!(login("jwt-file=/j&role=r"), jwt);
        let certificate = Login::Certificate { mount: place("cert"), role: None };
        assert_eq!(login("cert-file=/c&cert-key-file=/k"), certificate);
        // With another login the certificate is only that of the connection.
        let token = Login::Token(PathBuf::from("/t"));
        assert_eq!(login("token-file=/t&cert-file=/c&cert-key-file=/k"), token);
    }

    #[test]
    fn a_secret_of_kv() {
        let uri = Uri::parse("vault:secret=pg/main").unwrap();
        let wanted =
            Stored { mount: place("secret"), path: place("pg/main"), field: "key".to_owned() };
        assert_eq!(uri.target, Target::Stored(wanted));
    }

    #[test]
    fn wrong_uris_are_refused_and_show_no_secret() {
        for bad in [
            "vaults:key=k",
            "vault:transit/pg",
            "vault:",
            "vault:mount=m",
            "vault:key=k;secret=s",
            "vault:key=k;field=f",
            "vault:key=a/b",
            "vault:key=..",
            "vault:secret=a/../b",
            "vault:key=k;key=k",
            "vault:key=",
            "vault:key=%4",
            "vault:key=k;address=https://a",
            "vault:key=k?adress=https://a",
            "vault:key=k?address=a:8200",
            "vault:key=k?namespace=a%0ab",
            "vault:key=k?ca-file=ca.pem",
            "vault:key=k?token=sekrit",
            "vault:key=k?role-id=a&secret-id=sekrit",
            "vault:key=k?role-id=a",
            "vault:key=k?secret-id-file=/s",
            "vault:key=k?jwt-file=/j",
            "vault:key=k?role=r",
            "vault:key=k?auth-mount=approle",
            "vault:key=k?token-file=/t&role-id=a&secret-id-file=/s",
            "vault:key=k?cert-file=/c",
            "vault:key=k?anchor-mount=kv",
            "vault:key=k?sek/rit=1",
        ] {
            let failure = Uri::parse(bad).unwrap_err();
            assert_eq!(failure.kind, Fault::Configuration, "{bad}");
            assert!(!failure.message.contains("sekrit") && !failure.message.contains("sek/rit"));
        }
    }
}
