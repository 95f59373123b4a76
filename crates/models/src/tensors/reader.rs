//! Reads a tensor piece by piece. A piece that is not what was written is never handed out.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use holdfast_graph::{DataType, Digest, Tensor};

use super::file::{Header, PIECE_BYTES, Problem, chained, read_digest};
use super::folder::damaged;
use crate::error::StoreError;

/// A saved tensor that is being read.
pub struct TensorReader {
    path: PathBuf,
    header: Header,
    file: BufReader<File>,
    digest: Digest,
    given: u64,
    ended: bool,
}

impl TensorReader {
    pub(super) fn open(path: PathBuf, file: File) -> Result<TensorReader, StoreError> {
        let mut file = BufReader::new(file);
        let (header, digest) = Header::read(&mut file).map_err(|e| damaged(&path, e))?;
        Ok(TensorReader { path, header, file, digest, given: 0, ended: false })
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// The element type.
    pub fn dtype(&self) -> DataType {
        self.header.dtype
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.header.dims
    }

    /// How many bytes all pieces have together.
    pub fn byte_len(&self) -> u64 {
        self.header.byte_len
    }

    /// The next bytes of the tensor, checked; `None` after the last. Only then is it certain that
    /// the whole tensor was there.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        self.read_piece().map_err(|problem| damaged(&self.path, problem))
    }

    /// All that is left, as a tensor. Its bytes are in memory once.
    pub fn into_tensor(mut self) -> Result<Tensor, StoreError> {
        let too_large = |_| {
            let why = format!("its {} bytes do not fit into memory", self.header.byte_len);
            damaged(&self.path, Problem::Damaged(why))
        };
        let byte_len = usize::try_from(self.header.byte_len).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(byte_len).map_err(too_large)?;
        while let Some(piece) = self.next_piece()? {
            bytes.extend_from_slice(&piece);
        }
        let Header { dtype, dims, .. } = self.header;
        Tensor::new(dtype, dims, bytes.into())
            .map_err(|error| damaged(&self.path, Problem::Damaged(error.to_string())))
    }

    fn read_piece(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        if self.ended {
            return Ok(None);
        }
        let mut length = [0; 4];
        self.file.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        let expected = read_digest(&mut self.file)?;
        let left = self.header.byte_len - self.given;
        if length == 0 {
            if left > 0 || expected != self.digest {
                return Err(Problem::Damaged("pieces are missing".to_owned()));
            }
            self.ended = true;
            return Ok(None);
        }
        let size = left.min(PIECE_BYTES as u64) as usize;
        // What does not get smaller by packing gets a little larger.
        if size == 0 || length > PIECE_BYTES + PIECE_BYTES / 64 {
            return Err(Problem::Damaged("a piece has a wrong length".to_owned()));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact(&mut bytes)?;
        if self.header.zstd {
            bytes = zstd::bulk::decompress(&bytes, size).map_err(|error| {
                Problem::Damaged(format!("a piece cannot be unpacked: {error}"))
            })?;
        }
        let digest = chained(&self.digest, &bytes);
        if bytes.len() != size || digest != expected {
            return Err(Problem::Damaged("a piece does not have its hash".to_owned()));
        }
        self.digest = digest;
        self.given += size as u64;
        Ok(Some(bytes))
    }
}
