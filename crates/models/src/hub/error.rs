//! What can go wrong between a hub and a folder, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a repository could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The name is not one that a hub could have.
    #[error("\"{name}\" is not a repository: expected a name like owner/model")]
    BadRepository {
        /// The name as given.
        name: String,
    },
    /// The hub's address cannot be used.
    #[error("\"{endpoint}\" cannot be a model hub (HF_ENDPOINT): {reason}")]
    BadEndpoint {
        /// The address as given.
        endpoint: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The token has characters that no token has. The token itself is not shown.
    #[error("the hub token from {source_name} cannot be used: it is not plain text on one line")]
    BadToken {
        /// The variable or file that it came from.
        source_name: String,
    },
    /// The hub wants to know who asks, or knows and says no.
    #[error(
        "{what} cannot be had from {host} (HTTP {status}): it does not exist, or is private or gated. {}",
        access_hint(*.with_token)
    )]
    NoAccess {
        /// What was asked for.
        what: String,
        /// Who was asked.
        host: String,
        /// 401 or 403.
        status: u16,
        /// Whether a token was sent.
        with_token: bool,
    },
    /// There is no such repository, revision or file.
    #[error("{what} does not exist on {host} (HTTP 404): check the name and the revision")]
    NotFound {
        /// What was asked for.
        what: String,
        /// Who was asked.
        host: String,
    },
    /// The hub wants fewer requests.
    #[error(
        "{host} refuses further requests for now (HTTP 429){}: try again later, \
         or set HF_TOKEN for a higher limit",
        .retry_after.as_ref().map(|wait| format!(", it asks to wait for {wait} s")).unwrap_or_default()
    )]
    RateLimited {
        /// Who was asked.
        host: String,
        /// The seconds that the hub asks to wait for.
        retry_after: Option<u64>,
    },
    /// The hub itself is in trouble.
    #[error("{host} failed to answer for {what} (HTTP {status}): its fault, try again later")]
    ServerFault {
        /// What was asked for.
        what: String,
        /// Who was asked.
        host: String,
        /// 5xx.
        status: u16,
    },
    /// No connection could be made.
    #[error("cannot reach {host}: check the network, HF_ENDPOINT and any proxy")]
    Unreachable {
        /// Who was asked.
        host: String,
        /// What the network said.
        #[source]
        source: Box<ureq::Error>,
    },
    /// A connection broke, or nothing came over it for too long.
    #[error(
        "the connection to {host} broke after {byte_len} bytes of {what}: run it again to go on from there"
    )]
    Cut {
        /// What was asked for.
        what: String,
        /// Who was asked.
        host: String,
        /// How much of it is here.
        byte_len: u64,
        /// What the network said.
        #[source]
        source: io::Error,
    },
    /// The hub's answer makes no sense.
    #[error("{host} gave an answer for {what} that cannot be used: {reason}")]
    BadAnswer {
        /// What was asked for.
        what: String,
        /// Who was asked.
        host: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A listed path would lead out of the folder.
    #[error(
        "{repository} lists the file {path:?}, which does not stay inside a folder: nothing was fetched"
    )]
    UnsafePath {
        /// The repository.
        repository: String,
        /// The path as listed.
        path: String,
    },
    /// A file has other bytes than listed.
    #[error(
        "{file}: expected {expected}, found {found}; what was fetched is deleted, run it again"
    )]
    WrongContent {
        /// The file's path in the repository.
        file: String,
        /// What the listing says.
        expected: String,
        /// What came.
        found: String,
    },
    /// Somebody else is downloading into the folder.
    #[error("another download into {} is under way: wait for it to end", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// The disk has no room.
    #[error("no room on the disk for {}: {byte_len} bytes more are needed; free some and run it again to go on", path.display())]
    DiskFull {
        /// What was being written.
        path: PathBuf,
        /// How much of the file is missing.
        byte_len: u64,
    },
    /// Reading or writing a local file failed.
    #[error("cannot read or write {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl HubError {
    /// Whether asking again may help: the hub answered before and may do so again.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self,
            HubError::Cut { .. } | HubError::RateLimited { .. } | HubError::ServerFault { .. }
        )
    }

    /// Makes an error of what the system said about a local file.
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> HubError {
        move |source| HubError::File { path: path.to_owned(), source }
    }
}

fn access_hint(with_token: bool) -> &'static str {
    if with_token {
        "Check the name, and that the token may read it (accept its terms on the hub's page)"
    } else {
        "Check the name; if it is private or gated, set HF_TOKEN"
    }
}
