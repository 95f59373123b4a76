//! Addresses on the web, as far as the hub needs them: who they belong to and where they lead.

use std::fmt;

use ureq::http::Uri;

use super::error::HubError;

/// An absolute `http` or `https` address.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address(Uri);

impl Address {
    /// Checks an address that a user gave for a hub.
    pub(super) fn of_endpoint(text: &str) -> Result<Address, HubError> {
        let bad = |reason| HubError::BadEndpoint { endpoint: text.to_owned(), reason };
        let address = Address::parse(text.trim_end_matches('/'))
            .ok_or_else(|| bad("expected an address like https://hub.example.org"))?;
        // A password in an address ends up in logs and error messages.
        if address.0.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(HubError::BadEndpoint {
                endpoint: address.host().to_owned(),
                reason: "it holds a user name; give a token in HF_TOKEN instead",
            });
        }
        if address.0.query().is_some() {
            return Err(bad("it must not hold a query"));
        }
        Ok(address)
    }

    /// An address below this one. `path` starts with a slash and is already encoded.
    pub(super) fn below(&self, path: &str) -> Option<Address> {
        Address::parse(&format!("{}{path}", self.0.to_string().trim_end_matches('/')))
    }

    /// Where a `Location` or `Link` on the page at this address leads.
    pub(super) fn join(&self, target: &str) -> Option<Address> {
        if target.starts_with("//") {
            return Address::parse(&format!("{}:{target}", self.scheme()));
        }
        if target.starts_with('/') {
            let authority = self.0.authority()?;
            return Address::parse(&format!("{}://{authority}{target}", self.scheme()));
        }
        Address::parse(target)
    }

    /// Whether both are served by the same program: scheme, host and port.
    pub(super) fn same_origin(&self, other: &Address) -> bool {
        self.scheme() == other.scheme()
            && self.host().eq_ignore_ascii_case(other.host())
            && self.port() == other.port()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.scheme() == "https"
    }

    /// Whether this machine serves the address itself, so that no proxy can.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.host().trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    pub(super) fn host(&self) -> &str {
        self.0.host().unwrap_or_default()
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.0
    }

    fn parse(text: &str) -> Option<Address> {
        let uri: Uri = text.parse().ok()?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        (known && uri.host().is_some_and(|host| !host.is_empty())).then_some(Address(uri))
    }

    fn scheme(&self) -> &str {
        self.0.scheme_str().unwrap_or_default()
    }

    fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }
}

/// Without the query: a CDN's addresses carry signatures there, which are as good as a password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.host())?;
        if let Some(port) = self.0.port_u16() {
            write!(f, ":{port}")?;
        }
        f.write_str(self.0.path())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Percent-encodes text for a path. Slashes are encoded too: use [`encode_path`] to keep them.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Percent-encodes every segment of a path.
pub(super) fn encode_path(path: &str) -> String {
    path.split('/').map(encode).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn origin_is_scheme_host_and_port() {
        let hub = address("https://hub.example.org/prefix");
        assert!(hub.same_origin(&address("https://HUB.example.org:443/other")));
        assert!(!hub.same_origin(&address("http://hub.example.org/prefix")));
        assert!(!hub.same_origin(&address("https://cdn.example.org/prefix")));
        assert!(!hub.same_origin(&address("https://hub.example.org:8443/prefix")));
    }

    #[test]
    fn joins_absolute_and_rooted_targets_only() {
        let page = address("https://hub.example.org:8443/a/b?c=d");
        let joined = |target| page.join(target).map(|address| address.to_string());
        assert_eq!(joined("/x/y").as_deref(), Some("https://hub.example.org:8443/x/y"));
        assert_eq!(joined("http://cdn.example.org/z").as_deref(), Some("http://cdn.example.org/z"));
        assert_eq!(joined("//cdn.example.org/z").as_deref(), Some("https://cdn.example.org/z"));
        assert_eq!(joined("sibling"), None);
        assert_eq!(joined("ftp://cdn.example.org/z"), None);
    }

    #[test]
    fn endpoint_keeps_a_prefix_and_refuses_what_is_not_a_hub() {
        let endpoint = Address::of_endpoint("http://127.0.0.1:8080/hub/").unwrap();
        assert_eq!(endpoint.below("/api").unwrap().to_string(), "http://127.0.0.1:8080/hub/api");
        assert_eq!(
            Address::of_endpoint("https://hub.example.org")
                .unwrap()
                .below("/x")
                .unwrap()
                .to_string(),
            "https://hub.example.org/x"
        );
        for bad in ["hub.example.org", "ftp://hub.example.org", "https://", "https://h?q=1", ""] {
            assert!(Address::of_endpoint(bad).is_err(), "{bad}");
        }
        let error = Address::of_endpoint("https://me:secret@hub.example.org").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn prints_no_query() {
        assert_eq!(
            address("https://cdn.example.org/f?sig=secret").to_string(),
            "https://cdn.example.org/f"
        );
    }

    #[test]
    fn encodes_what_is_special_in_addresses() {
        assert_eq!(encode("refs/pr/1"), "refs%2Fpr%2F1");
        assert_eq!(encode_path("onnx/a b#?é.onnx"), "onnx/a%20b%23%3F%C3%A9.onnx");
    }

    #[test]
    fn knows_loopback() {
        for local in ["http://127.0.0.1:1", "http://localhost", "http://[::1]:80/"] {
            assert!(address(local).is_loopback(), "{local}");
        }
        assert!(!address("http://10.0.0.1").is_loopback());
    }
}
