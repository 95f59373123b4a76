//! Tensors whose bytes are in files beside the model.
//!
//! The bytes are attached as slices of a memory map, after which such a tensor is like any
//! other. A model comes from anywhere, so it may only name plain files inside its own folder.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use crate::dtype::DataType;
use crate::error::{ExternalProblem, ReadError};
use crate::proto::{DataLocation, TensorProto};
use crate::tensor::{TensorError, checked_dims};

/// Maps a whole file. An empty file is empty bytes.
pub fn map_file(path: &Path) -> std::io::Result<Bytes> {
    MappedFile::open(path).map(Bytes::from_owner)
}

/// A whole file as memory: the system reads a page when it is first used.
pub struct MappedFile {
    /// None of an empty file, which cannot be mapped.
    map: Option<memmap2::Mmap>,
}

impl MappedFile {
    /// Maps a file.
    pub fn open(path: &Path) -> std::io::Result<MappedFile> {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(MappedFile { map: None });
        }
        #[expect(unsafe_code, reason = "memory maps are how weights are read without copying")]
        // SAFETY: the map is only read. Another process that truncates the file while it is
        // mapped can end this one with SIGBUS; the store never changes a file in place for that
        // reason, and a user who overwrites a model during an import is told to expect nothing
        // better.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(MappedFile { map: Some(map) })
    }

    /// Gives the pages back that were read so far. The bytes stay as they are: a page that is
    /// used again is read again. Where the system cannot do that, nothing happens.
    pub fn release_pages(&self) {
        #[cfg(unix)]
        if let Some(map) = &self.map {
            #[expect(unsafe_code, reason = "for other kinds of maps this advice loses data")]
            // SAFETY: the map is of a file and never written to, so pages come back the same.
            // It is advice: a system that does not follow it changes nothing.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

/// Where external data comes from: gives the whole file of a location.
pub(crate) type Source<'a> = dyn FnMut(&str) -> Result<Bytes, ExternalProblem> + 'a;

/// Attaches external data, asking for each file once.
pub(crate) struct Attacher<'a> {
    source: &'a mut Source<'a>,
    files: HashMap<String, Bytes>,
}

impl<'a> Attacher<'a> {
    pub(crate) fn new(source: &'a mut Source<'a>) -> Attacher<'a> {
        Attacher { source, files: HashMap::new() }
    }

    /// If the tensor's bytes are external, makes them its raw bytes.
    pub(crate) fn attach(&mut self, tensor: &mut TensorProto) -> Result<(), ReadError> {
        if tensor.data_location != DataLocation::External as i32 {
            return Ok(());
        }
        let bytes = self.bytes_of(tensor).map_err(|problem| ReadError::External {
            place: format!("tensor `{}`", tensor.name),
            problem,
        })?;
        tensor.raw_data = Some(bytes);
        tensor.data_location = DataLocation::Default as i32;
        tensor.external_data = Vec::new();
        Ok(())
    }

    fn bytes_of(&mut self, tensor: &TensorProto) -> Result<Bytes, ExternalProblem> {
        let entry = |key: &str| {
            let found = tensor.external_data.iter().find(|entry| entry.key == key);
            found.map(|entry| entry.value.as_str())
        };
        let number = |key: &'static str| {
            entry(key)
                .map(|value| {
                    let problem = || ExternalProblem::NotANumber { key, value: value.to_owned() };
                    value.parse::<u64>().map_err(|_| problem())
                })
                .transpose()
        };
        let location = entry("location").ok_or(ExternalProblem::NoLocation)?;
        let offset = number("offset")?.unwrap_or(0);

        let dtype = DataType::from_onnx(tensor.data_type)
            .ok_or(TensorError::UnknownType(tensor.data_type))?;
        let dims = checked_dims(&tensor.dims)?;
        let elements = dims.iter().map(|&dim| dim as u64).product();
        let expected = dtype.byte_len(elements).ok_or(TensorError::NoFixedSize(dtype))?;
        let len = number("length")?.unwrap_or(expected);
        if len != expected {
            return Err(TensorError::WrongLength { dtype, dims, expected, found: len }.into());
        }

        let file = self.file(location)?;
        let end = offset.saturating_add(len);
        if end > file.len() as u64 {
            return Err(ExternalProblem::BeyondEnd {
                location: location.to_owned(),
                offset,
                end,
                file_bytes: file.len() as u64,
            });
        }
        // Both fit a usize, because the mapped file's length does.
        Ok(file.slice(offset as usize..end as usize))
    }

    fn file(&mut self, location: &str) -> Result<Bytes, ExternalProblem> {
        if let Some(bytes) = self.files.get(location) {
            return Ok(bytes.clone());
        }
        let bytes = (self.source)(location)?;
        self.files.insert(location.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

/// A file inside `folder`, mapped.
pub(crate) fn file_inside(folder: &Path, location: &str) -> Result<Bytes, ExternalProblem> {
    let path = path_inside(folder, location)?;
    map_file(&path).map_err(|source| ExternalProblem::Io { location: location.to_owned(), source })
}

/// The path of a plain file inside `folder`, however links on the way may point.
fn path_inside(folder: &Path, location: &str) -> Result<PathBuf, ExternalProblem> {
    let outside = || ExternalProblem::Outside(location.to_owned());
    let io = |source| ExternalProblem::Io { location: location.to_owned(), source };
    let relative = Path::new(location);
    // Some exporters write `./name`.
    let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    let plain = relative.components().all(inside);
    if !plain || location.is_empty() || location.contains('\0') {
        return Err(outside());
    }
    let folder = folder.canonicalize().map_err(io)?;
    let path = folder.join(relative).canonicalize().map_err(io)?;
    if !path.starts_with(&folder) || !path.is_file() {
        return Err(outside());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_the_same_after_its_pages_were_released() {
        let folder = tempfile::tempdir().unwrap();
        for content in [vec![], b"short".to_vec(), vec![7; 3 << 20]] {
            let path = folder.path().join("file");
            std::fs::write(&path, &content).unwrap();
            let map = MappedFile::open(&path).unwrap();
            assert!(map.as_ref() == content);
            map.release_pages();
            assert!(map.as_ref() == content);
        }
    }
}
