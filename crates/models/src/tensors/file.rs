//! The file of a saved tensor.
//!
//! ```text
//! "holdfast" · u32 format · u32 length of the header · header (JSON) · its SHA-256
//! for each piece: u32 length in the file · SHA-256 of (what was before, its bytes) · bytes
//! u32 0 · the last SHA-256 again
//! ```
//!
//! Numbers are little-endian. A piece's hash covers the one before it, so that pieces cannot be
//! swapped, left out or taken from another file.

use std::io::{self, Read};

use holdfast_graph::{DataType, Digest};
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

pub(super) const MAGIC: &[u8; 8] = b"holdfast";
pub(super) const FORMAT: u32 = 1;

/// Bytes of a tensor that one piece has at most.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// A name has at most 256 bytes and so has a namespace; nobody has a million axes.
const MAX_HEADER_BYTES: u32 = 64 << 10;

/// What a file says about its tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) dtype: DataType,
    pub(super) dims: Vec<usize>,
    pub(super) byte_len: u64,
    /// Milliseconds since 1970.
    pub(super) saved_at_ms: u64,
    pub(super) zstd: bool,
}

impl Header {
    /// The start of a file, and the hash that its first piece goes on from.
    pub(super) fn encode(&self) -> (Vec<u8>, Digest) {
        let json = serde_json::to_vec(self).expect("a header has only strings and numbers");
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend((json.len() as u32).to_le_bytes());
        bytes.extend(json);
        let digest = Digest::of(&bytes);
        bytes.extend(digest.0);
        (bytes, digest)
    }

    /// Reads the start of a file.
    pub(super) fn read(file: &mut impl Read) -> Result<(Header, Digest), Problem> {
        let mut start = [0; 16];
        file.read_exact(&mut start)?;
        let number = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&start[at..at + 4]);
            u32::from_le_bytes(bytes)
        };
        if start[..8] != MAGIC[..] {
            return Err(Problem::Damaged("it is not a saved tensor".to_owned()));
        }
        if number(8) > FORMAT {
            return Err(Problem::Newer(number(8)));
        }
        if number(12) > MAX_HEADER_BYTES {
            return Err(Problem::Damaged("its header is too long".to_owned()));
        }
        let mut bytes = start.to_vec();
        bytes.resize(16 + number(12) as usize, 0);
        file.read_exact(&mut bytes[16..])?;
        let expected = read_digest(file)?;
        if Digest::of(&bytes) != expected {
            return Err(Problem::Damaged("its header does not have its hash".to_owned()));
        }
        let header = serde_json::from_slice(&bytes[16..])
            .map_err(|error| Problem::Damaged(format!("its header cannot be read: {error}")))?;
        Ok((header, expected))
    }
}

/// The hash of a piece that comes after another.
pub(super) fn chained(before: &Digest, bytes: &[u8]) -> Digest {
    let mut hasher = sha2::Sha256::new();
    hasher.update(before.0);
    hasher.update(bytes);
    Digest(hasher.finalize().into())
}

pub(super) fn read_digest(file: &mut impl Read) -> Result<Digest, Problem> {
    let mut digest = Digest([0; 32]);
    file.read_exact(&mut digest.0)?;
    Ok(digest)
}

/// What is wrong with a file.
#[derive(Debug)]
pub(super) enum Problem {
    Damaged(String),
    Newer(u32),
    Io(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Problem::Damaged("it ends too early".to_owned()),
            _ => Problem::Io(error),
        }
    }
}
