//! The names that a server goes by. A request for any other name was led here by a trick (DNS
//! rebinding): its page believes to be of another origin.

use std::net::{IpAddr, SocketAddr};

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use crate::tls;

/// Where a server is, and by which names.
#[derive(Debug)]
pub(crate) struct Site {
    origin: String,
    port: u16,
    /// By which others reach it. No page can be led here by one: it is the page's own origin.
    addresses: Vec<IpAddr>,
    /// With TLS: what says which names are ours.
    certificate: Option<CertificateDer<'static>>,
}

impl Site {
    /// `name` is what others are to call it by.
    pub(crate) fn new(
        address: SocketAddr,
        name: Option<&str>,
        certificate: Option<CertificateDer<'static>>,
    ) -> Site {
        let scheme = if certificate.is_some() { "https" } else { "http" };
        let host = match (name, address.ip()) {
            (Some(name), _) => name.parse().map_or(name.to_owned(), in_address),
            (None, ip) => in_address(ip),
        };
        let origin = format!("{scheme}://{host}:{}", address.port());
        let addresses = tls::reachable(address.ip());
        Site { origin, port: address.port(), addresses, certificate }
    }

    /// Scheme, name and port.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.certificate.is_some() { "https" } else { "http" }
    }

    /// The scheme of its sockets.
    pub(crate) fn socket_scheme(&self) -> &'static str {
        if self.certificate.is_some() { "wss" } else { "ws" }
    }

    /// Whether a `Host` header names this server.
    pub(crate) fn is_called(&self, host: &str) -> bool {
        let (name, port) = split_port(host);
        let usual_port = if self.certificate.is_some() { 443 } else { 80 };
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.map_or(Some(usual_port), |text| {
            // Parsing would take a sign, too.
            Some(text).filter(is_number).and_then(|digits| digits.parse().ok())
        });
        port == Some(self.port) && self.goes_by(name)
    }

    /// Whether this is one of its names, or addresses as they stand in a link.
    pub(crate) fn goes_by(&self, name: &str) -> bool {
        is_loopback(name) || self.is_reached_by(name) || self.is_certified_for(name)
    }

    fn is_reached_by(&self, name: &str) -> bool {
        self.addresses.iter().any(|&ip| in_address(ip) == name)
    }

    fn is_certified_for(&self, name: &str) -> bool {
        let Some(certificate) = &self.certificate else { return false };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let Ok(name) = ServerName::try_from(name) else { return false };
        ParsedCertificate::try_from(certificate)
            .is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
    }
}

/// An address as it stands in a link.
fn in_address(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1" || name == "[::1]"
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        // The colons of a bare IPv6 address are inside brackets.
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(site: &Site, ours: &[&str], foreign: &[&str]) {
        for host in ours {
            assert!(site.is_called(host), "{host} is ours");
        }
        for host in foreign {
            assert!(!site.is_called(host), "{host} is not ours");
        }
    }

    #[test]
    fn loopback_goes_by_its_names_and_port_only() {
        let site = Site::new("127.0.0.1:8765".parse().unwrap(), None, None);
        assert_eq!(site.origin(), "http://127.0.0.1:8765");
        check(
            &site,
            &["127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765"],
            &[
                "",
                ":8765",
                "127.0.0.1",
                "127.0.0.1:80",
                "127.0.0.1:8765:8765",
                "127.0.0.1.evil.example:8765",
                "evil.example:8765",
                "localhost.:8765",
                "::1:8765",
                "[::1]",
                "127.0.0.1:+8765",
            ],
        );
    }

    #[test]
    fn with_tls_it_goes_by_what_its_certificate_says() {
        let names = ["studio.example".to_owned(), "192.0.2.7".to_owned()];
        let tls = tls::self_signed(&names).unwrap();
        let address = "198.51.100.7:8765".parse().unwrap();
        let site = Site::new(address, Some("studio.example"), Some(tls.certificate));
        assert_eq!(site.origin(), "https://studio.example:8765");
        check(
            &site,
            &["studio.example:8765", "192.0.2.7:8765", "localhost:8765"],
            &["studio.example", "other.example:8765", "192.0.2.8:8765"],
        );
    }

    #[test]
    fn it_goes_by_the_address_that_it_listens_on_whatever_its_certificate_says() {
        let tls = tls::self_signed(&["studio.example".to_owned()]).unwrap();
        let at = |address: &str| {
            Site::new(address.parse().unwrap(), None, Some(tls.certificate.clone()))
        };
        let site = at("192.0.2.7:8765");
        assert_eq!(site.origin(), "https://192.0.2.7:8765");
        check(&site, &["192.0.2.7:8765"], &["192.0.2.7", "192.0.2.8:8765", "[192.0.2.7]:8765"]);
        let site = at("[2001:db8::7]:8765");
        check(&site, &["[2001:db8::7]:8765"], &["2001:db8::7:8765", "[2001:db8::8]:8765"]);
    }

    #[test]
    fn the_usual_port_need_not_be_named() {
        let site = Site::new("127.0.0.1:80".parse().unwrap(), None, None);
        check(&site, &["localhost", "localhost:80"], &["localhost:443"]);
    }
}
