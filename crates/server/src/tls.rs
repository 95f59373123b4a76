//! TLS: certificates from files, or made on the spot.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};

use crate::error::ServerError;

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Tls {
    /// From PEM files.
    Files {
        /// The certificate, and those that lead to one that browsers trust.
        cert: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// Made at the start, for the server's names and the addresses that it listens on. People
    /// have to compare its fingerprint, once in each browser.
    SelfSigned,
}

/// What a listener needs.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) certificate: CertificateDer<'static>,
}

/// How long a certificate that was made on the spot is good for. Browsers refuse very long ones.
const VALIDITY: Duration = Duration::from_secs(90 * 24 * 60 * 60);

pub(crate) fn load(tls: &Tls, names: &[String], ip: IpAddr) -> Result<Loaded, ServerError> {
    match tls {
        Tls::Files { cert, key } => from_files(cert, key),
        Tls::SelfSigned => {
            let mut all = names.to_vec();
            all.extend(reachable(ip).iter().map(IpAddr::to_string));
            all.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
            let mut seen = std::collections::HashSet::new();
            all.retain(|name| seen.insert(name.clone()));
            self_signed(&all)
        }
    }
}

/// The addresses by which others reach a server that listens on `ip`.
pub(crate) fn reachable(ip: IpAddr) -> Vec<IpAddr> {
    if !ip.is_unspecified() {
        return vec![ip];
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let addresses = interfaces.iter().map(if_addrs::Interface::ip);
    addresses.filter(|ip| !ip.is_loopback() && !is_link_local(*ip)).collect()
}

/// The first name that a certificate is for, if it is for any that can stand in a link.
pub(crate) fn first_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_dns_names();
    names.find(|name| !name.contains('*')).map(str::to_owned)
}

/// The SHA-256 of a certificate, as browsers show it.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let digest = Sha256::digest(certificate);
    let bytes: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

/// A certificate for these names.
pub(crate) fn self_signed(names: &[String]) -> Result<Loaded, ServerError> {
    let failed = |error: rcgen::Error| {
        ServerError::Tls(format!("a certificate for {}", names.join(", ")), error.into())
    };
    let mut parameters = rcgen::CertificateParams::new(names).map_err(failed)?;
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "Holdfast");
    let now = SystemTime::now();
    // Clocks of other machines may be behind.
    parameters.not_before = (now - Duration::from_secs(24 * 60 * 60)).into();
    parameters.not_after = (now + VALIDITY).into();
    let key = rcgen::KeyPair::generate().map_err(failed)?;
    let certificate = parameters.self_signed(&key).map_err(failed)?.der().clone();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    configure("the certificate made at the start", vec![certificate], key.into())
}

fn from_files(cert: &Path, key: &Path) -> Result<Loaded, ServerError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: rustls::pki_types::pem::Error| ServerError::Tls(path.clone(), error.into())
    };
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect).map_err(failed(cert))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
    configure(&cert.display().to_string(), chain, key)
}

fn configure(
    what: &str,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Loaded, ServerError> {
    let failed = |error: rustls::Error| ServerError::Tls(what.to_owned(), error.into());
    let certificate = chain
        .first()
        .cloned()
        .ok_or_else(|| ServerError::Tls(what.to_owned(), "there is no certificate in it".into()))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(failed)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), certificate })
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
