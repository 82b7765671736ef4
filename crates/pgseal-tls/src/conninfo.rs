//! Parses libpq's connection strings (PostgreSQL documentation, "Connection Strings"): only the
//! parts that say where the server is and which certificates are trusted.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;

use crate::error::TlsError;

/// Where a server is, and the user and database of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The name that the certificate must be for.
    pub host: String,
    /// The address to connect to instead of looking the name up.
    pub hostaddr: Option<String>,
    /// TCP port.
    pub port: u16,
    /// User name, for the check whether the server accepts connections without TLS.
    pub user: String,
    /// Database name, for the same check.
    pub dbname: String,
    /// The trusted certificates; `None` if none were named and libpq's default file does not exist.
    pub root: Option<Root>,
}

/// Where trusted certificates come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// `sslrootcert`, or `~/.postgresql/root.crt`.
    File(PathBuf),
    /// `sslrootcert=system`: those of the operating system.
    System,
}

/// The parameters that are used, with their environment variables.
const VARIABLES: [(&str, &str); 6] = [
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("port", "PGPORT"),
    ("user", "PGUSER"),
    ("dbname", "PGDATABASE"),
    ("sslrootcert", "PGSSLROOTCERT"),
];

const DEFAULT_PORT: u16 = 5432;

impl Target {
    /// Parses a connection string: keywords and values, or a URI. libpq's environment variables
    /// give the parameters that the string does not contain, or all of them if it is empty.
    ///
    /// # Errors
    /// [`TlsError::Conninfo`] if the string is malformed, or names a Unix socket, several hosts or
    /// a service.
    pub fn parse(conninfo: &str) -> Result<Target, TlsError> {
        Target::from_parts(conninfo, |name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_parts(
        conninfo: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Target, TlsError> {
        let uri = ["postgresql://", "postgres://"].iter().find_map(|p| conninfo.strip_prefix(p));
        let mut given = match uri {
            Some(rest) => parse_uri(rest)?,
            None if conninfo.contains('=') || conninfo.trim().is_empty() => {
                parse_keywords(conninfo)?
            }
            None => {
                return Err(TlsError::Conninfo(format!(
                    "connection string \"{conninfo}\": neither keywords with values nor a URI; \
                     write for example \"host={conninfo}\""
                )));
            }
        };
        if given.contains_key("service") {
            return Err(TlsError::Conninfo(
                "connection string: services are not looked up; give host and port".to_owned(),
            ));
        }
        for (keyword, variable) in VARIABLES {
            if let Some(value) = environment(variable) {
                given.entry(keyword.to_owned()).or_insert(value);
            }
        }
        let mut take = |keyword: &str| given.remove(keyword).filter(|value| !value.is_empty());
        let hostaddr = take("hostaddr");
        let host = match (take("host"), &hostaddr) {
            (Some(host), _) => host,
            (None, Some(address)) => address.clone(),
            (None, None) => {
                return Err(TlsError::Conninfo(
                    "the connection string names no host, so that libpq takes the Unix socket, \
                     and there is no TLS on Unix sockets; give host=NAME"
                        .to_owned(),
                ));
            }
        };
        if host.starts_with(['/', '@']) {
            return Err(TlsError::Conninfo(format!(
                "{host} is a Unix socket, and there is no TLS on Unix sockets; give the server's \
                 name, as host=NAME"
            )));
        }
        let port = take("port");
        if host.contains(',') || port.as_ref().is_some_and(|port| port.contains(',')) {
            return Err(TlsError::Conninfo(
                "the connection string names several hosts; check them one by one".to_owned(),
            ));
        }
        let port = port.map_or(Ok(DEFAULT_PORT), |port| {
            port.parse().map_err(|_| {
                TlsError::Conninfo(format!("port \"{port}\": no number from 1 to 65535"))
            })
        })?;
        let user = take("user")
            .or_else(|| environment("USER"))
            .or_else(|| environment("LOGNAME"))
            .unwrap_or_else(|| "postgres".to_owned());
        let dbname = take("dbname").unwrap_or_else(|| user.clone());
        let root = match take("sslrootcert") {
            Some(name) if name == "system" => Some(Root::System),
            Some(file) => Some(Root::File(file.into())),
            None => environment("HOME")
                .map(|home| PathBuf::from(home).join(".postgresql/root.crt"))
                .filter(|file| file.is_file())
                .map(Root::File),
        };
        Ok(Target { host, hostaddr, port, user, dbname, root })
    }

    /// Host and port, for messages.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The host name or address to connect to.
    pub fn connect_to(&self) -> &str {
        self.hostaddr.as_deref().unwrap_or(&self.host)
    }
}

fn parse_keywords(text: &str) -> Result<BTreeMap<String, String>, TlsError> {
    let bad = |what: String| TlsError::Conninfo(format!("connection string: {what}"));
    let mut given = BTreeMap::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (keyword, behind) = rest
            .split_once('=')
            .ok_or_else(|| bad(format!("there is no \"=\" after \"{rest}\"")))?;
        let mut value = String::new();
        let behind = behind.trim_start();
        let quoted = behind.starts_with('\'');
        let mut characters = behind.char_indices().skip(usize::from(quoted));
        let mut end = behind.len();
        let mut closed = !quoted;
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => value.extend(characters.next().map(|(_, next)| next)),
                '\'' if quoted => {
                    closed = true;
                    end = at + 1;
                    break;
                }
                blank if !quoted && blank.is_whitespace() => {
                    end = at;
                    break;
                }
                other => value.push(other),
            }
        }
        if !closed {
            return Err(bad(format!(
                "the quote in the value of \"{}\" is not closed",
                keyword.trim()
            )));
        }
        given.insert(keyword.trim().to_owned(), value);
        rest = behind.get(end..).unwrap_or_default().trim_start();
    }
    Ok(given)
}

/// Behind `postgresql://`: `[user[:password]@][host][:port][/dbname][?name=value&...]`.
fn parse_uri(rest: &str) -> Result<BTreeMap<String, String>, TlsError> {
    let mut given = BTreeMap::new();
    let mut put = |keyword: &str, value: &str| -> Result<(), TlsError> {
        if !value.is_empty() {
            given.insert(keyword.to_owned(), percent_decoded(value)?);
        }
        Ok(())
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, dbname) = rest.split_once('/').unwrap_or((rest, ""));
    put("dbname", dbname)?;
    let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    put("user", login.split(':').next().unwrap_or_default())?;
    let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':').unwrap_or_default()),
        None => place.rsplit_once(':').unwrap_or((place, "")),
    };
    put("host", host)?;
    put("port", port)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (keyword, value) = pair.split_once('=').ok_or_else(|| {
            TlsError::Conninfo(format!("connection string: there is no \"=\" in \"{pair}\""))
        })?;
        put(keyword, value)?;
    }
    Ok(given)
}

fn percent_decoded(text: &str) -> Result<String, TlsError> {
    let bad = || TlsError::Conninfo(format!("connection string: \"{text}\" has a bad %-escape"));
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next().ok_or_else(bad)?, rest.next().ok_or_else(bad)?];
        let digits = std::str::from_utf8(&digits).map_err(|_| bad())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Target, TlsError> {
        Target::from_parts(text, |name| (name == "USER").then(|| "me".to_owned()))
    }

    #[test]
    fn keywords_and_uris_say_the_same() {
        let want = Target {
            host: "db.example".to_owned(),
            hostaddr: Some("10.0.0.1".to_owned()),
            port: 5433,
            user: "o'neil".to_owned(),
            dbname: "a b".to_owned(),
            root: Some(Root::File("/etc/ca.crt".into())),
        };
        let keywords = "host=db.example hostaddr = 10.0.0.1 port='5433' user=o\\'neil \
                        dbname='a b' sslmode=verify-full sslrootcert=/etc/ca.crt";
        assert_eq!(parse(keywords).unwrap(), want);
        let uri = "postgresql://o%27neil:pass@db.example:5433/a%20b?sslrootcert=/etc/ca.crt&\
                   hostaddr=10.0.0.1";
        assert_eq!(parse(uri).unwrap(), want);
    }

    #[test]
    fn what_is_left_out_is_as_libpq_has_it() {
        let target = parse("host=db").unwrap();
        assert_eq!((target.port, target.user.as_str(), target.dbname.as_str()), (5432, "me", "me"));
        assert_eq!(parse("postgres://[::1]:77").unwrap().address(), "[::1]:77");
        let from = |name: &str| (name == "PGHOST").then(|| "elsewhere".to_owned());
        assert_eq!(Target::from_parts("", from).unwrap().host, "elsewhere");
    }

    #[test]
    fn sockets_services_lists_and_nonsense_are_refused_with_the_next_step() {
        for (text, words) in [
            ("", "Unix socket"),
            ("port=1", "Unix socket"),
            ("host=/run/postgresql", "no TLS on Unix sockets"),
            ("postgresql:///db?host=/run", "no TLS on Unix sockets"),
            ("postgresql://%2Frun/db", "no TLS on Unix sockets"),
            ("host=a,b", "one by one"),
            ("service=x", "services"),
            ("db.example", "host=db.example"),
            ("host='a", "not closed"),
            ("host=a port", "no \"=\""),
            ("host=a port=0x1", "no number"),
            ("postgres://a%2", "%-escape"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
