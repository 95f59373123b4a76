//! One GET at a time to the hub and to wherever it redirects, with a clear error for each refusal.
//!
//! Redirects are followed here and not by the HTTP client, because the hub sends downloads on to
//! other hosts, and the token must reach the hub's own host after a redirect but never another.

use std::io::Read;
use std::time::Duration;

use ureq::http::{Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::address::Address;
use super::environment::Token;
use super::error::HubError;

const REDIRECT_LIMIT: usize = 10;

/// A page of a listing is well below this.
const TEXT_LIMIT: u64 = 32 << 20;

/// Talks to one hub.
pub(super) struct Transport {
    endpoint: Address,
    token: Option<Token>,
    agent: Agent,
}

/// An answer, and who gave it in the end.
pub(super) struct Answer {
    pub(super) response: Response<Body>,
    pub(super) address: Address,
}

impl Answer {
    /// The text of a short answer.
    pub(super) fn text(&mut self, what: &str) -> Result<Vec<u8>, HubError> {
        let mut text = Vec::new();
        let mut reader = self.response.body_mut().as_reader().take(TEXT_LIMIT + 1);
        reader.read_to_end(&mut text).map_err(|source| cut(what, &self.address, 0, source))?;
        if text.len() as u64 > TEXT_LIMIT {
            let reason = format!("it is longer than {TEXT_LIMIT} bytes");
            return Err(bad_answer(what, &self.address, reason));
        }
        Ok(text)
    }
}

impl Transport {
    pub(super) fn new(endpoint: Address, token: Option<Token>) -> Transport {
        // Certificates that the machine trusts, as people behind a company's proxy need them.
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let mut config = Agent::config_builder()
            .tls_config(tls)
            .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_per_read(Some(Duration::from_secs(60)));
        if endpoint.is_loopback() {
            config = config.proxy(None);
        }
        Transport { endpoint, token, agent: config.build().into() }
    }

    pub(super) fn endpoint(&self) -> &Address {
        &self.endpoint
    }

    /// Asks for `what` at an address. Gives back any answer with one of the statuses.
    pub(super) fn get(
        &self,
        what: &str,
        address: &Address,
        headers: &[(header::HeaderName, String)],
        accepted: &[StatusCode],
    ) -> Result<Answer, HubError> {
        let mut address = address.clone();
        for _ in 0..=REDIRECT_LIMIT {
            let mut request = self.agent.get(address.uri());
            for (name, value) in headers {
                request = request.header(name, value);
            }
            if let Some(token) = self.token_for(&address) {
                request = request.header(header::AUTHORIZATION, token.bearer());
            }
            let response = request.call().map_err(|error| failure(error, what, &address))?;
            if accepted.contains(&response.status()) {
                return Ok(Answer { response, address });
            }
            if !response.status().is_redirection() {
                return Err(self.refusal(&response, what, &address));
            }
            address = self.redirect(&response, what, &address)?;
        }
        Err(bad_answer(what, &address, format!("more than {REDIRECT_LIMIT} redirects")))
    }

    fn token_for(&self, address: &Address) -> Option<&Token> {
        self.token.as_ref().filter(|_| address.same_origin(&self.endpoint))
    }

    fn redirect(
        &self,
        response: &Response<Body>,
        what: &str,
        from: &Address,
    ) -> Result<Address, HubError> {
        let location = response.headers().get(header::LOCATION);
        let location = location.and_then(|location| location.to_str().ok());
        let address = location
            .and_then(|location| from.join(location))
            .ok_or_else(|| bad_answer(what, from, "a redirect to nowhere".to_owned()))?;
        if from.is_encrypted() && !address.is_encrypted() {
            let reason = format!("a redirect to {address}, which is not encrypted");
            return Err(bad_answer(what, from, reason));
        }
        Ok(address)
    }

    fn refusal(&self, response: &Response<Body>, what: &str, address: &Address) -> HubError {
        let what = what.to_owned();
        let host = address.host().to_owned();
        match response.status().as_u16() {
            status @ (401 | 403) => {
                HubError::NoAccess { what, host, status, with_token: self.token.is_some() }
            }
            404 => HubError::NotFound { what, host },
            429 => {
                let retry_after = response.headers().get(header::RETRY_AFTER);
                let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
                HubError::RateLimited { host, retry_after }
            }
            status @ 500..=599 => HubError::ServerFault { what, host, status },
            status => HubError::BadAnswer { what, host, reason: format!("HTTP status {status}") },
        }
    }
}

/// The connection to an address broke when this much had come.
pub(super) fn cut(
    what: &str,
    address: &Address,
    byte_len: u64,
    source: std::io::Error,
) -> HubError {
    HubError::Cut { what: what.to_owned(), host: address.host().to_owned(), byte_len, source }
}

/// What an address answered makes no sense.
pub(super) fn bad_answer(what: &str, address: &Address, reason: String) -> HubError {
    HubError::BadAnswer { what: what.to_owned(), host: address.host().to_owned(), reason }
}

/// Tells an address that cannot be reached, where asking again at once is of little use, from a
/// connection that broke.
fn failure(error: ureq::Error, what: &str, address: &Address) -> HubError {
    use std::io::ErrorKind;
    use ureq::{Error, Timeout};
    let broke = match &error {
        Error::Io(source) => matches!(
            source.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
                | ErrorKind::TimedOut
                | ErrorKind::Interrupted
        ),
        Error::Timeout(timeout) => !matches!(timeout, Timeout::Connect | Timeout::Resolve),
        Error::Protocol(_) | Error::BodyStalled => true,
        _ => false,
    };
    if broke {
        cut(what, address, 0, error.into_io())
    } else {
        HubError::Unreachable { host: address.host().to_owned(), source: Box::new(error) }
    }
}
