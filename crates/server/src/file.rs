//! `server.json`: how other programs of the same user find a running server.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::client::{Client, ClientError};
use crate::error::ServerError;
use crate::lock::Lock;

/// Where a server is and what opens it. Only its user can read it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFile {
    /// The version of Holdfast.
    pub version: String,
    /// The server's process.
    pub pid: u32,
    /// Where browsers find it.
    pub origin: String,
    /// Where programs on this machine find it.
    pub address: SocketAddr,
    /// What opens control.
    pub token: String,
    /// With TLS: the SHA-256 of its certificate.
    pub fingerprint: Option<String>,
}

impl ServerFile {
    /// Where it stands.
    pub fn path(home: &Path) -> PathBuf {
        home.join("server.json")
    }

    /// The server that runs for this home, however busy it is. A file whose server is gone is
    /// removed.
    pub fn find(home: &Path) -> Option<ServerFile> {
        let file = ServerFile::read(home)?;
        match Lock::share(home) {
            Ok(None) => Some(file),
            Ok(Some(_nobody_starts_meanwhile)) => {
                tracing::debug!(pid = file.pid, "server.json is of a server that is gone");
                file.remove(home);
                None
            }
            Err(error) => {
                tracing::debug!(%error, "whether the server of server.json is there is not known");
                Some(file)
            }
        }
    }

    /// Talks to the server.
    pub fn client(&self) -> Client {
        Client::new(self.address, &self.token, self.fingerprint.clone())
    }

    /// Writes it, all at once and for nobody else to read.
    pub fn write(&self, home: &Path) -> Result<(), ServerError> {
        let path = ServerFile::path(home);
        let write = || {
            // A temporary file has mode 0600 from the start.
            let mut file = tempfile::NamedTempFile::new_in(home)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|source| ServerError::File { path: path.clone(), source })
    }

    /// Removes it, unless another server has written its own by now.
    pub fn remove(&self, home: &Path) {
        if ServerFile::read(home).as_ref() == Some(self) {
            // It may be gone already.
            let _ = std::fs::remove_file(ServerFile::path(home));
        }
    }

    fn read(home: &Path) -> Option<ServerFile> {
        serde_json::from_slice(&std::fs::read(ServerFile::path(home)).ok()?).ok()
    }
}

impl std::fmt::Debug for ServerFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ServerFile { version, pid, origin, .. } = self;
        write!(formatter, "ServerFile({version}, process {pid}, {origin}, …)")
    }
}

impl ServerFile {
    /// How the server is.
    pub async fn status(&self) -> Result<crate::Status, ClientError> {
        self.client().get_json("/control/status").await
    }

    /// How the server's pool is.
    pub async fn metrics(&self) -> Result<holdfast_pool::Metrics, ClientError> {
        self.client().get_json("/control/metrics").await
    }

    /// The link by which a browser joins it.
    pub async fn join_link(&self) -> Result<String, ClientError> {
        let answer: serde_json::Value = self.client().get_json("/control/join").await?;
        let link = answer.get("link").and_then(serde_json::Value::as_str);
        link.map(str::to_owned).ok_or(ClientError::Answer("there is no link in it".to_owned()))
    }
}
