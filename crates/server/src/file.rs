//! `server.json`: how other programs of the same user find a running server.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client::{Client, ClientError};
use crate::error::ServerError;

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

/// How long a server may take to answer before it counts as hung.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

impl ServerFile {
    /// Where it stands.
    pub fn path(home: &Path) -> PathBuf {
        home.join("server.json")
    }

    /// The server that runs for this home. A file whose server is gone is removed.
    pub async fn find(home: &Path) -> Option<ServerFile> {
        let path = ServerFile::path(home);
        let file: ServerFile = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        let client = file.client();
        match tokio::time::timeout(ANSWER_LIMIT, client.get("/control/status")).await {
            Ok(Ok(_)) => Some(file),
            // It does not answer in time, but somebody is there.
            Err(_) => None,
            // Nobody is there, or somebody else on the same port.
            Ok(Err(error)) => {
                tracing::debug!(%error, "server.json is of a server that is gone");
                file.remove(home);
                None
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
        let path = ServerFile::path(home);
        let there = std::fs::read(&path).ok();
        let there = there.and_then(|bytes| serde_json::from_slice::<ServerFile>(&bytes).ok());
        if there.as_ref() == Some(self) {
            // It may be gone already.
            let _ = std::fs::remove_file(&path);
        }
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

    /// The link by which a browser joins it.
    pub async fn join_link(&self) -> Result<String, ClientError> {
        let answer: serde_json::Value = self.client().get_json("/control/join").await?;
        let link = answer.get("link").and_then(serde_json::Value::as_str);
        link.map(str::to_owned).ok_or(ClientError::Answer("there is no link in it".to_owned()))
    }
}
