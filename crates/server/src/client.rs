//! The other end of control: one request to a server on this machine.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls;

/// Talks to a server's control.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    token: String,
    fingerprint: Option<String>,
}

/// Why a server gave no answer.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ClientError {
    #[error("cannot reach Holdfast at {address}")]
    Connect { address: SocketAddr, source: std::io::Error },
    #[error("the connection to Holdfast failed")]
    Http(#[from] hyper::Error),
    #[error("Holdfast refused with {status}: {message}")]
    Refused { status: StatusCode, message: String },
    #[error("the answer of Holdfast makes no sense: {0}")]
    Answer(String),
}

/// Bytes of an answer.
const ANSWER_BYTES: usize = crate::run::BODY_BYTES;

impl Client {
    /// For a server at an address; with TLS, for the one with this certificate only.
    pub fn new(address: SocketAddr, token: &str, fingerprint: Option<String>) -> Client {
        Client { address, token: token.to_owned(), fingerprint }
    }

    /// Asks.
    pub async fn get(&self, path: &str) -> Result<Bytes, ClientError> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Asks for JSON.
    pub async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let answer = self.get(path).await?;
        serde_json::from_slice(&answer).map_err(|error| ClientError::Answer(error.to_string()))
    }

    /// One request on a connection of its own.
    pub async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        let unreachable = |source| ClientError::Connect { address: self.address, source };
        let stream = TcpStream::connect(self.address).await.map_err(unreachable)?;
        let Some(fingerprint) = &self.fingerprint else {
            return self.ask_over(stream, method, path, body).await;
        };
        let connector = pinned(fingerprint);
        let name = ServerName::IpAddress(self.address.ip().into());
        let stream = connector.connect(name, stream).await.map_err(unreachable)?;
        self.ask_over(stream, method, path, body).await
    }

    async fn ask_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ClientError> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Full::new(body))
            .map_err(|error| ClientError::Answer(error.to_string()))?;
        let answered = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| ClientError::Answer(error.to_string()))?.to_bytes();
            if status.is_success() {
                return Ok(body);
            }
            let message = String::from_utf8_lossy(&body).trim().to_owned();
            Err(ClientError::Refused { status, message })
        };
        tokio::pin!(answered);
        tokio::select! {
            answer = &mut answered => answer,
            // What it left behind is still there to be read.
            _ = connection => answered.await,
        }
    }
}

/// Trusts the one certificate that `server.json` names, whoever signed it.
fn pinned(fingerprint: &str) -> TlsConnector {
    let verifier = Pinned { fingerprint: fingerprint.to_owned(), provider: tls::provider() };
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if tls::fingerprint(certificate) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
