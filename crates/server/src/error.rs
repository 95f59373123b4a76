//! Why a server does not start.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ServerError {
    #[error(
        "{0} can be reached from other machines, which needs TLS: give `--tls-cert FILE --tls-key \
         FILE`, or `--tls self-signed`; or listen on 127.0.0.1"
    )]
    NeedsTls(SocketAddr),
    #[error(
        "port {} of {} is in use by another program; choose another one with `--port`",
        .0.port(), .0.ip()
    )]
    PortInUse(SocketAddr),
    #[error("Holdfast is running already, at {origin} (process {pid}); end it first")]
    Running { origin: String, pid: u32 },
    #[error(
        "another Holdfast is just starting or ending on {}; try again in a moment", .0.display()
    )]
    HomeInUse(PathBuf),
    #[error("cannot lock {}, which keeps two servers from sharing a store", path.display())]
    Lock { path: PathBuf, source: std::io::Error },
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("{0}")]
    AssetsMissing(String),
    #[error("cannot read {}", path.display())]
    Assets { path: PathBuf, source: std::io::Error },
    #[error("{0} is not usable for TLS: {1}")]
    Tls(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "no browser would find this server by the name `{0}`: its certificate is not for it (and \
         without one a server is called `localhost` only); give `--name` one that it is for"
    )]
    Name(String),
    #[error("the token needs 16 to 256 letters, digits, `-` or `_`")]
    Token,
    #[error("cannot write {}", path.display())]
    File { path: PathBuf, source: std::io::Error },
}
