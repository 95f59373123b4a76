//! Garbage collection: removes what no model needs.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

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
        let models = self.models()?;
        let graphs: HashSet<String> = models
            .iter()
            .flat_map(|model| &model.components)
            .map(|component| component.graph.graph.to_string())
            .collect();
        let mut needed: HashSet<Digest> = models.iter().flat_map(|model| model.blobs()).collect();

        for (path, derived) in self.all_derived()? {
            match derived {
                Some(derived) if graphs.contains(&derived.from) => {
                    needed.extend(derived.graph.blobs());
                }
                _ => {
                    report.derived += 1;
                    remove(&path, dry_run, &mut report)?;
                }
            }
        }
        for (digest, bytes) in self.blobs.list()? {
            if !needed.contains(&digest) {
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
}

fn remove(path: &Path, dry_run: bool, report: &mut GcReport) -> Result<(), StoreError> {
    report.bytes += fs::metadata(path).map_or(0, |metadata| metadata.len());
    if dry_run {
        return Ok(());
    }
    fs::remove_file(path).map_err(|e| StoreError::io("remove", path, e))
}
