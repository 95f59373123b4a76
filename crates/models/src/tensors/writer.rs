//! Writes a tensor piece by piece.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use holdfast_graph::Digest;

use super::file::{Header, PIECE_BYTES, chained};
use super::folder::{SavedTensor, SavedTensors};
use crate::blobs::{PARTIAL, make_readable, sync_folder};
use crate::error::StoreError;

/// Whether a saved tensor is made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As it is.
    None,
    /// With zstd. Weights and activations hardly get smaller by it; masks and token ids do.
    Zstd,
}

/// A tensor that is being written. It is there once it is finished; until then, and if it never
/// is, what was saved under its name before stays as it was.
pub struct TensorWriter<'a> {
    saved: &'a SavedTensors,
    header: Header,
    path: PathBuf,
    file: BufWriter<tempfile::NamedTempFile>,
    /// Bytes of the piece that is not full yet.
    piece: Vec<u8>,
    digest: Digest,
    taken: u64,
    /// Shared by all who write, so that nobody takes their files for garbage.
    _lock: File,
}

impl<'a> TensorWriter<'a> {
    pub(super) fn new(
        saved: &'a SavedTensors,
        header: Header,
        path: PathBuf,
    ) -> Result<TensorWriter<'a>, StoreError> {
        let io = |error| StoreError::io("write", &path, error);
        let lock = saved.lock()?;
        lock.lock_shared().map_err(io)?;
        let file = tempfile::Builder::new().suffix(PARTIAL).tempfile_in(saved.folder());
        let mut file = BufWriter::new(file.map_err(io)?);
        let (start, digest) = header.encode();
        file.write_all(&start).map_err(io)?;
        let piece = Vec::new();
        Ok(TensorWriter { saved, header, path, file, piece, digest, taken: 0, _lock: lock })
    }

    /// Makes the tensor permanent, once all of its bytes were written, and removes the oldest ones
    /// if all together are too large now.
    pub fn finish(mut self) -> Result<SavedTensor, StoreError> {
        if self.taken != self.header.byte_len {
            return Err(StoreError::WrongTensorLength {
                name: self.header.name,
                expected: self.header.byte_len,
                found: self.taken,
            });
        }
        let path = self.path.clone();
        let io = |error| StoreError::io("write", &path, error);
        self.end_piece().map_err(io)?;
        self.file.write_all(&0u32.to_le_bytes()).map_err(io)?;
        self.file.write_all(&self.digest.0).map_err(io)?;
        let file = self.file.into_inner().map_err(|error| io(error.into_error()))?;
        make_readable(file.as_file()).map_err(io)?;
        file.as_file().sync_all().map_err(io)?;
        let file_bytes = file.as_file().metadata().map_err(io)?.len();
        self.saved.check_size(&self.header.name, file_bytes)?;
        file.persist(&path).map_err(|error| io(error.error))?;
        sync_folder(self.saved.folder())?;
        self.saved.make_room(&path)?;
        Ok(SavedTensor::new(self.header, file_bytes))
    }

    fn end_piece(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.digest = chained(&self.digest, &self.piece);
        let packed = match self.header.zstd {
            true => Some(zstd::bulk::compress(&self.piece, 0)?),
            false => None,
        };
        let bytes = packed.as_ref().unwrap_or(&self.piece);
        self.file.write_all(&(bytes.len() as u32).to_le_bytes())?;
        self.file.write_all(&self.digest.0)?;
        self.file.write_all(bytes)?;
        self.piece.clear();
        Ok(())
    }
}

impl Write for TensorWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.header.byte_len - self.taken;
        if left == 0 && !bytes.is_empty() {
            let name = &self.header.name;
            return Err(io::Error::other(format!("more bytes than tensor `{name}` has")));
        }
        let room = (PIECE_BYTES - self.piece.len()) as u64;
        let count = room.min(left).min(bytes.len() as u64) as usize;
        self.piece.extend_from_slice(&bytes[..count]);
        self.taken += count as u64;
        if self.piece.len() == PIECE_BYTES {
            self.end_piece()?;
        }
        Ok(count)
    }

    /// Does nothing: what is not finished need not be on disk.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
