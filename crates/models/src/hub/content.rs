//! What identifies a file's bytes on a hub, and whether a file on disk has them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use holdfast_graph::Digest;
use sha2::Digest as _;

/// The hash by which a hub knows a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentId {
    /// SHA-256 of the bytes: files in large-file storage.
    Sha256(Digest),
    /// The id that git gives a file: SHA-1 over a small header and the bytes.
    GitBlob([u8; 20]),
}

impl ContentId {
    /// The id of this kind that the bytes of a local file have.
    pub(super) fn of_file(&self, path: &Path) -> io::Result<ContentId> {
        let mut file = File::open(path)?;
        Ok(match self {
            ContentId::Sha256(_) => {
                let mut hash = sha2::Sha256::new();
                each_chunk(&mut file, |chunk| hash.update(chunk))?;
                ContentId::Sha256(Digest(hash.finalize().into()))
            }
            ContentId::GitBlob(_) => {
                let mut hash = sha1::Sha1::new();
                hash.update(format!("blob {}\0", file.metadata()?.len()));
                each_chunk(&mut file, |chunk| hash.update(chunk))?;
                ContentId::GitBlob(hash.finalize().into())
            }
        })
    }

    /// The first digits, enough to tell versions of one file apart.
    pub(super) fn short(&self) -> String {
        let mut text = match self {
            ContentId::Sha256(digest) => digest.to_string(),
            ContentId::GitBlob(id) => hexadecimal(id),
        };
        text.truncate(12);
        text
    }

    /// Reads a git id of 40 hexadecimal digits.
    pub(super) fn parse_git_blob(text: &str) -> Option<ContentId> {
        if text.len() != 40 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut id = [0; 20];
        for (index, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
        }
        Some(ContentId::GitBlob(id))
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContentId::Sha256(digest) => write!(f, "SHA-256 {digest}"),
            ContentId::GitBlob(id) => write!(f, "git id {}", hexadecimal(id)),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn each_chunk(file: &mut File, mut update: impl FnMut(&[u8])) -> io::Result<()> {
    let mut chunk = vec![0; 1 << 18];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(()),
            byte_len => update(&chunk[..byte_len]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_bytes_as_git_and_sha256sum_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hello");
        std::fs::write(&path, "hello\n").unwrap();
        // printf 'hello\n' | git hash-object --stdin
        let git = ContentId::parse_git_blob("ce013625030ba8dba906f756967f9e9ca394464a").unwrap();
        assert_eq!(git.of_file(&path).unwrap(), git);
        let sha256 = ContentId::Sha256(Digest::of(b"hello\n"));
        assert_eq!(sha256.of_file(&path).unwrap(), sha256);
        std::fs::write(&path, "hellO\n").unwrap();
        assert_ne!(git.of_file(&path).unwrap(), git);
        assert_ne!(sha256.of_file(&path).unwrap(), sha256);
    }

    #[test]
    fn refuses_what_is_no_git_id() {
        assert_eq!(ContentId::parse_git_blob("ce01"), None);
        assert_eq!(ContentId::parse_git_blob(&"g".repeat(40)), None);
        assert_eq!(ContentId::parse_git_blob(&"é".repeat(20)), None);
        assert_eq!(ContentId::parse_git_blob(&"+f".repeat(20)), None);
    }
}
