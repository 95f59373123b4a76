//! A picture or a recording as it was handed over: bytes and a name for messages.

use std::io::Read;
use std::path::Path;

use bytes::Bytes;

use super::InputError;

/// The bytes of a file, not yet understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// How messages call it, such as its path.
    pub name: String,
    /// What is in it.
    pub bytes: Bytes,
}

impl Source {
    /// No file is read beyond this.
    pub const MAX_BYTES: u64 = 1 << 30;

    /// A source that is in memory already.
    pub fn new(name: impl Into<String>, bytes: impl Into<Bytes>) -> Source {
        Source { name: name.into(), bytes: bytes.into() }
    }

    /// Reads a file. An empty one and one beyond [`MAX_BYTES`](Source::MAX_BYTES) are errors.
    pub fn read(path: impl AsRef<Path>) -> Result<Source, InputError> {
        let path = path.as_ref();
        let io = |source| InputError::Io { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        // Read through a limit instead of trusting the size: the path may be a pipe.
        let file = std::fs::File::open(path).map_err(io)?;
        file.take(Source::MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
        let name = path.display().to_string();
        if bytes.is_empty() {
            return Err(InputError::content(&name, "the file is empty"));
        }
        if bytes.len() as u64 > Source::MAX_BYTES {
            return Err(InputError::content(&name, "the file is larger than 1 GB"));
        }
        Ok(Source::new(name, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_or_missing_file_is_an_error_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nothing.png");
        assert!(Source::read(&path).unwrap_err().to_string().starts_with("cannot read "));
        std::fs::write(&path, b"").unwrap();
        let message = Source::read(&path).unwrap_err().to_string();
        assert!(message.ends_with("nothing.png: the file is empty"), "{message}");
        std::fs::write(&path, b"x").unwrap();
        assert_eq!(Source::read(&path).unwrap().bytes, "x");
    }
}
