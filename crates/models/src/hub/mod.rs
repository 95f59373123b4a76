//! Gets a repository's files from a model hub into a folder, by the Hugging Face Hub's HTTP API.
//!
//! A *listing* is what a repository holds at one commit: paths, sizes and content hashes.
//! A *download* brings the wanted files of a listing into a folder. It resumes what an earlier one
//! began, and a file is in place only when its bytes have the listed hash.
//! What is wanted is the caller's business; so is what happens with the folder afterwards.
//!
//! ```no_run
//! use holdfast_models::hub::{Hub, Repository};
//!
//! let hub = Hub::from_environment()?;
//! let repository: Repository = "sentence-transformers/all-MiniLM-L6-v2".parse()?;
//! let listing = hub.list(&repository, "main")?;
//! let wanted = |file: &holdfast_models::hub::RemoteFile| file.path.ends_with(".json");
//! hub.download(&listing, wanted, "minilm".as_ref(), &mut |progress| {
//!     println!("{}: {} of {}", progress.file.path, progress.file_done, progress.file.size);
//! })?;
//! # Ok::<(), holdfast_models::hub::HubError>(())
//! ```

mod address;
mod content;
mod download;
mod environment;
mod error;
mod listing;
mod part;
mod repository;
mod retry;
mod transport;

pub use content::ContentId;
pub use download::Progress;
pub use environment::Token;
pub use error::HubError;
pub use listing::{Listing, RemoteFile};
pub use repository::Repository;
pub use retry::Retry;

use address::Address;
use transport::Transport;

/// The hub that is asked where nobody says otherwise.
pub const PUBLIC_ENDPOINT: &str = "https://huggingface.co";

/// A model hub, and how to talk to it.
pub struct Hub {
    transport: Transport,
    retry: Retry,
}

impl Hub {
    /// The hub at this address, such as [`PUBLIC_ENDPOINT`]. The token is sent to this host only.
    pub fn new(endpoint: &str, token: Option<Token>) -> Result<Hub, HubError> {
        let endpoint = Address::of_endpoint(endpoint)?;
        Ok(Hub { transport: Transport::new(endpoint, token), retry: Retry::default() })
    }

    /// The hub and token that the Hugging Face tools would use here: `HF_ENDPOINT`, then `HF_TOKEN`
    /// or the file that logging in wrote.
    pub fn from_environment() -> Result<Hub, HubError> {
        let get = |name: &str| std::env::var_os(name);
        Hub::new(&environment::endpoint(get)?, environment::token(get)?)
    }

    /// The hub at this address, with the token that [`from_environment`](Hub::from_environment) finds.
    pub fn at(endpoint: &str) -> Result<Hub, HubError> {
        Hub::new(endpoint, environment::token(|name: &str| std::env::var_os(name))?)
    }

    /// The hub's address.
    pub fn endpoint(&self) -> String {
        self.transport.endpoint().to_string()
    }

    /// The same hub with another way to wait and give up.
    pub fn with_retry(self, retry: Retry) -> Hub {
        Hub { retry, ..self }
    }
}
