//! What every request has to pass before anything else looks at it, and the headers that every
//! response gets.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_devices::Secret;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use crate::site::Site;

/// Why a request is turned away.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) &'static str);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, format!("{}\n", self.1)).into_response()
    }
}

/// Checks a request by what the door that it came in by is called, hands it on, and puts the headers
/// on the response.
pub(crate) async fn guard(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let (host, mut response) = match check(&site, &request) {
        Ok(host) => (Some(host), next.run(request).await),
        Err(refusal) => {
            let Refusal(status, why) = refusal;
            tracing::warn!(%status, why, method = %request.method(), "a request was turned away");
            (None, refusal.into_response())
        }
    };
    add_headers(&site, host.as_deref(), response.headers_mut());
    response
}

/// The token of an `Authorization: Bearer` header.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether the request knows the secret.
pub(crate) fn knows(headers: &HeaderMap, secret: &Secret) -> bool {
    bearer(headers).is_some_and(|token| secret.matches(token))
}

/// Gives the host that the request names, which is one of ours.
fn check(site: &Site, request: &Request) -> Result<String, Refusal> {
    const WRONG_HOST: Refusal = Refusal(
        StatusCode::MISDIRECTED_REQUEST,
        "This Holdfast does not go by that name. Use the address that it printed.",
    );
    const FOREIGN: Refusal =
        Refusal(StatusCode::FORBIDDEN, "Requests of other pages are not answered here.");
    let headers = request.headers();
    let host = only(headers, &header::HOST).ok_or(WRONG_HOST)?;
    let is_named_otherwise = request.uri().authority().is_some_and(|named| named.as_str() != host);
    if is_named_otherwise || !site.is_called(host) {
        return Err(WRONG_HOST);
    }
    if headers.contains_key(header::ORIGIN) {
        let own = format!("{}://{host}", site.scheme());
        let origin = only(headers, &header::ORIGIN).ok_or(FOREIGN)?;
        if !origin.eq_ignore_ascii_case(&own) {
            return Err(FOREIGN);
        }
    }
    if is_from_elsewhere(headers) && !is_visit(request) {
        return Err(FOREIGN);
    }
    Ok(host.to_owned())
}

/// Whether the browser says that another site's page is behind the request.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    site.is_some_and(|site| site != b"same-origin" && site != b"none")
}

/// Whether somebody followed a link to the page. That is harmless: no page can look into it.
fn is_visit(request: &Request) -> bool {
    let says = |name: &str, value: &[u8]| {
        request.headers().get(name).is_some_and(|said| said.as_bytes() == value)
    };
    request.method() == Method::GET
        && matches!(request.uri().path(), "/" | "/join")
        && says("sec-fetch-mode", b"navigate")
        && says("sec-fetch-dest", b"document")
}

/// The value of a header that is there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn add_headers(site: &Site, host: Option<&str>, headers: &mut HeaderMap) {
    // Not every browser counts a socket to the page's own host as 'self'.
    let socket = host.map_or(String::new(), |host| format!(" {}://{host}", site.socket_scheme()));
    let policy = format!(
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; \
         connect-src 'self'{socket}; style-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    if let Ok(policy) = HeaderValue::try_from(policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        // Together they make the page cross-origin isolated, which threads need.
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-embedder-policy", "require-corp"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("permissions-policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    // What does not say otherwise is of no use to anyone later.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
