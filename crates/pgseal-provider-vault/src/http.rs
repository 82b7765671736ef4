//! Requests to the HTTP API of the store.
//!
//! What is sent and received is wiped here. The buffers of ureq and rustls are not: they live as
//! long as the process, which is one request of pgseal, and which leaves no core dump.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use pgseal_plugin::tls::Trust;
use pgseal_plugin::{Failure, Fault, configuration};
use ureq::Agent;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use zeroize::Zeroizing;

use crate::address::Address;
use crate::failures::{of_tls, of_transport};
use crate::files::Token;
use crate::place::Place;
use crate::reply::Reply;
use crate::settings::Settings;
use crate::tls;

/// How long all requests of a run may take. pgseal stops the plugin after 15 s.
const ALL: Duration = Duration::from_secs(10);
/// How long one connection may take to be made.
const CONNECT: Duration = Duration::from_secs(4);
/// How long the answer to the last request may take, which drops the token; beyond [`ALL`].
const LAST: Duration = Duration::from_secs(2);
/// The longest answer, in bytes. A key of thousands of versions needs some 100 kB.
const MAX_BODY: usize = 512 << 10;
/// How often a request is sent again to where the store redirects it.
const MAX_REDIRECTS: u32 = 2;
/// A client of one store.
pub(crate) struct Client {
    agent: Agent,
    trust: Trust,
    address: RefCell<Address>,
    namespace: Option<String>,
    end: Instant,
    is_last: Cell<bool>,
}

impl Client {
    /// A client. Nothing is connected yet.
    pub(crate) fn new(settings: &Settings) -> Result<Client, Failure<'static>> {
        let trust = Trust::read(settings.ca.as_deref(), settings.certificate.as_ref())?;
        let agent: Agent = Agent::config_builder()
            .tls_config(tls::for_ureq(&trust))
            // Nothing but the settings decides where a token goes.
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::Never)
            .http_status_as_error(false)
            .user_agent(concat!("pgseal-provider-vault/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT))
            .build()
            .into();
        Ok(Client {
            agent,
            trust,
            address: RefCell::new(settings.address.clone()),
            namespace: settings.namespace.clone(),
            end: Instant::now() + ALL,
            is_last: Cell::new(false),
        })
    }

    /// The address of the store, and its namespace.
    pub(crate) fn shown(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{}, namespace {namespace}", self.address.borrow()),
            None => self.address.borrow().to_string(),
        }
    }

    /// The next request is the last one, and has time of its own.
    pub(crate) fn last(&self) {
        self.is_last.set(true);
    }

    /// `GET /v1/PATH?QUERY`.
    pub(crate) fn get(
        &self,
        token: Option<&Token>,
        path: &Path<'_>,
    ) -> Result<Reply, Failure<'static>> {
        self.send(&Method::GET, token, path, None)
    }

    /// `POST /v1/PATH`, with JSON.
    pub(crate) fn post(
        &self,
        token: Option<&Token>,
        path: &Path<'_>,
        body: &[u8],
    ) -> Result<Reply, Failure<'static>> {
        self.send(&Method::POST, token, path, Some(body))
    }

    fn send(
        &self,
        method: &Method,
        token: Option<&Token>,
        path: &Path<'_>,
        body: Option<&[u8]>,
    ) -> Result<Reply, Failure<'static>> {
        for _ in 0..=MAX_REDIRECTS {
            let address = self.address.borrow().clone();
            let answer = self.once(method, token, &address, path, body)?;
            // A standby that does not forward requests redirects them to the active node.
            let is_redirect = matches!(
                answer.status(),
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
            );
            if !is_redirect {
                return read(answer, &address, method, path);
            }
            let location = answer.headers().get(header::LOCATION);
            let location = location.and_then(|value| value.to_str().ok()).unwrap_or_default();
            *self.address.borrow_mut() = address.redirected(location)?;
        }
        Err(Failure::new(
            Fault::Unavailable,
            format!("{}: the store redirects in a circle", self.address.borrow()),
        ))
    }

    fn once(
        &self,
        method: &Method,
        token: Option<&Token>,
        address: &Address,
        path: &Path<'_>,
        body: Option<&[u8]>,
    ) -> Result<Response<ureq::Body>, Failure<'static>> {
        let left = match self.is_last.get() {
            true => LAST,
            false => self.end.saturating_duration_since(Instant::now()),
        };
        if left.is_zero() {
            return Err(Failure::new(Fault::Unavailable, format!("{address}: no time is left")));
        }
        // An agent of the vendor may want the first header, against requests that a browser was
        // tricked into.
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{address}/v1/{}", path.encoded()))
            .header("X-Vault-Request", "true");
        if let Some(namespace) = self.namespace.as_ref().filter(|_| !path.is_global) {
            request = request.header("X-Vault-Namespace", namespace);
        }
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(token)
                .map_err(|_| configuration("the token is not printable ASCII"))?;
            value.set_sensitive(true);
            request = request.header("X-Vault-Token", value);
        }
        let wrong = |_| configuration(format!("{address}: this is no address of a store"));
        let failed = |error: ureq::Error| {
            let (host, port) = address.host_and_port();
            match is_closed(&error) && address.is_tls() && !self.is_last.get() {
                true => tls::alert(&self.trust, host, port),
                false => None,
            }
            .map_or_else(|| of_transport(&error, address), |alert| of_tls(&alert, address))
        };
        match body {
            Some(body) => {
                let request = request.header(header::CONTENT_TYPE, "application/json");
                let request = request.body(body).map_err(wrong)?;
                let request = self.agent.configure_request(request);
                self.agent.run(request.timeout_global(Some(left)).build()).map_err(failed)
            }
            None => {
                let request = self.agent.configure_request(request.body(()).map_err(wrong)?);
                self.agent.run(request.timeout_global(Some(left)).build()).map_err(failed)
            }
        }
    }
}

/// Whether the store closed the connection.
fn is_closed(error: &ureq::Error) -> bool {
    let kind = match error {
        ureq::Error::Io(error) => error.kind(),
        _ => return false,
    };
    matches!(
        kind,
        ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::UnexpectedEof
    )
}

fn read(
    mut answer: Response<ureq::Body>,
    address: &Address,
    method: &Method,
    path: &Path<'_>,
) -> Result<Reply, Failure<'static>> {
    let status = answer.status().as_u16();
    // The buffer never grows: a reallocation would leave a copy that is not wiped.
    let mut body = Zeroizing::new(Vec::with_capacity(MAX_BODY + 64));
    let limit = u64::try_from(MAX_BODY + 1).unwrap_or(u64::MAX);
    let mut reader = answer.body_mut().as_reader().take(limit);
    reader
        .read_to_end(&mut body)
        .map_err(|error| of_transport(&ureq::Error::from(error), address))?;
    let asked = format!("{method} {address}/v1/{path}");
    let reply = Reply { status, path: path.to_string(), asked, body };
    if reply.body.len() > MAX_BODY { Err(reply.not_understood()) } else { Ok(reply) }
}

/// A path below `/v1/`: places, and words of the API between them.
pub(crate) struct Path<'a> {
    parts: Vec<Part<'a>>,
    query: Option<String>,
    is_global: bool,
}

enum Part<'a> {
    Place(&'a Place),
    Word(&'a str),
}

impl<'a> Path<'a> {
    /// A path that begins with a word of the API.
    pub(crate) fn word(word: &'a str) -> Path<'a> {
        Path { parts: vec![Part::Word(word)], query: None, is_global: false }
    }

    /// A path that begins with a mount.
    pub(crate) fn at(place: &'a Place) -> Path<'a> {
        Path { parts: vec![Part::Place(place)], query: None, is_global: false }
    }

    /// With this word behind it, which needs no encoding.
    pub(crate) fn then(mut self, word: &'a str) -> Path<'a> {
        self.parts.push(Part::Word(word));
        self
    }

    /// With this place behind it.
    pub(crate) fn place(mut self, place: &'a Place) -> Path<'a> {
        self.parts.push(Part::Place(place));
        self
    }

    /// With this query.
    pub(crate) fn query(mut self, query: String) -> Path<'a> {
        self.query = Some(query);
        self
    }

    /// Outside of all namespaces.
    pub(crate) fn global(mut self) -> Path<'a> {
        self.is_global = true;
        self
    }

    fn encoded(&self) -> String {
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|part| match part {
                Part::Place(place) => place.encoded(),
                Part::Word(word) => (*word).to_owned(),
            })
            .collect();
        let path = parts.join("/");
        match &self.query {
            Some(query) => format!("{path}?{query}"),
            None => path,
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                f.write_str("/")?;
            }
            match part {
                Part::Place(place) => write!(f, "{place}")?,
                Part::Word(word) => f.write_str(word)?,
            }
        }
        Ok(())
    }
}
