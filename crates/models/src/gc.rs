//! Garbage collection: removes what no model needs.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_graph::Digest;

use crate::blobs::PARTIAL;
use crate::error::StoreError;
use crate::store::Store;

/// What a collection removed, or would remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Blobs that no model and no derived graph names.
    pub blobs: usize,
    /// Derived graphs whose original is gone.
    pub derived: usize,
    /// Files that an interrupted import left behind.
    pub partial: usize,
    /// Bytes of all of these.
    pub bytes: u64,
}

impl Store {
    /// Removes what no model needs. Waits until nobody is importing.
    pub fn gc(&self, dry_run: bool) -> Result<GcReport, StoreError> {
        let _lock = self.lock_alone()?;
        let mut report = GcReport::default();
        let needed = self.needed()?;
        for path in &needed.stale {
            report.derived += 1;
            remove(path, dry_run, &mut report)?;
        }
        for (digest, bytes) in self.blobs.list()? {
            if !needed.blobs.contains(&digest) {
                report.blobs += 1;
                report.bytes += bytes;
                if !dry_run {
                    self.blobs.remove(&digest)?;
                }
            }
        }
        for folder in [self.blobs.folder(), &self.models_folder(), &self.derived_folder()] {
            let io = |error| StoreError::io("list", folder, error);
            for entry in fs::read_dir(folder).map_err(io)? {
                let path = entry.map_err(io)?.path();
                if path.to_string_lossy().ends_with(PARTIAL) {
                    report.partial += 1;
                    remove(&path, dry_run, &mut report)?;
                }
            }
        }
        Ok(report)
    }

    /// Fails if a manifest cannot be read: what it needs would be taken for garbage.
    pub(crate) fn needed(&self) -> Result<Needed, StoreError> {
        let models = self.models()?;
        if let Some((name, error)) = models.unreadable.into_iter().next() {
            return Err(StoreError::UnknownNeeds { name, source: Box::new(error) });
        }
        let components = models.readable.iter().flat_map(|model| &model.components);
        let graphs: HashSet<String> =
            components.map(|component| component.graph.graph.to_string()).collect();
        let blobs = models.readable.iter().flat_map(|model| model.blobs()).collect();
        let mut needed = Needed { blobs, stale: Vec::new() };
        for (path, derived) in self.all_derived()? {
            match derived {
                Some(derived) if graphs.contains(&derived.from) => {
                    needed.blobs.extend(derived.graph.blobs());
                }
                _ => needed.stale.push(path),
            }
        }
        Ok(needed)
    }
}

/// What the models of a store need.
pub(crate) struct Needed {
    /// The blobs of models and of graphs derived from them.
    pub(crate) blobs: HashSet<Digest>,
    /// Derived graphs whose original is gone, or that cannot be read: they can be made again.
    pub(crate) stale: Vec<PathBuf>,
}

fn remove(path: &Path, dry_run: bool, report: &mut GcReport) -> Result<(), StoreError> {
    report.bytes += fs::metadata(path).map_or(0, |metadata| metadata.len());
    if dry_run {
        return Ok(());
    }
    fs::remove_file(path).map_err(|e| StoreError::io("remove", path, e))
}
