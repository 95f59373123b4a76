//! Verification: every blob is what its name says, every model is complete and readable.

use std::collections::HashSet;

use holdfast_graph::Digest;

use crate::error::StoreError;
use crate::store::Store;

/// What a verification found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Models that were looked at.
    pub models: usize,
    /// Blobs that were hashed.
    pub blobs: usize,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong: the model, and the problem.
    pub problems: Vec<(String, StoreError)>,
}

impl Store {
    /// Checks all models, or just one. Derived graphs are left out: a damaged one is made again.
    pub fn verify(&self, name: Option<&str>) -> Result<VerifyReport, StoreError> {
        let all = name.is_none();
        let names = match name {
            Some(name) => vec![name.to_owned()],
            None => self.names()?,
        };
        // Keeps `gc` out. Where this is not possible, the store is one that we may only read.
        let _lock = self.lock_shared().ok();
        let mut report = VerifyReport::default();
        // Damage is looked at again for every model that it concerns.
        let mut fine: HashSet<Digest> = HashSet::new();
        for name in names {
            let manifest = match self.model(&name) {
                Ok(manifest) => manifest,
                Err(StoreError::NoSuchModel { .. }) if all => continue,
                Err(error @ StoreError::NoSuchModel { .. }) => return Err(error),
                Err(error) => {
                    report.problems.push((name, error));
                    continue;
                }
            };
            report.models += 1;
            let mut whole = true;
            for digest in manifest.blobs() {
                if fine.contains(&digest) {
                    continue;
                }
                match self.blob(&digest) {
                    Ok(bytes) => {
                        fine.insert(digest);
                        report.blobs += 1;
                        report.bytes += bytes.len() as u64;
                    }
                    Err(error) => {
                        whole = false;
                        report.problems.push((name.clone(), error));
                    }
                }
            }
            // A graph whose blobs are damaged was reported already.
            for component in manifest.components.iter().filter(|_| whole) {
                if let Err(error) = self.open_graph(&component.graph) {
                    report.problems.push((name.clone(), error));
                }
            }
        }
        Ok(report)
    }
}
