//! What a file says once for all its models: operator versions and functions. They have to agree.

use std::collections::BTreeMap;

use super::{ComposeError, Part};
use crate::proto::{FunctionProto, OperatorSetIdProto};
use crate::validate::is_onnx;

/// The versions of all domains, if they agree.
pub(super) fn opsets(parts: &[Part<'_>]) -> Result<Vec<OperatorSetIdProto>, ComposeError> {
    let mut known: BTreeMap<String, (i64, &str)> = BTreeMap::new();
    for part in parts {
        for OperatorSetIdProto { domain, version } in &part.model.proto().opset_import {
            let domain = if is_onnx(domain) { String::new() } else { domain.clone() };
            let (first_version, first) =
                *known.entry(domain.clone()).or_insert((*version, part.name));
            if first_version != *version {
                let domain = if domain.is_empty() { "ai.onnx".to_owned() } else { domain };
                let (first, second) = (first.to_owned(), part.name.to_owned());
                let second_version = *version;
                return Err(ComposeError::Opset {
                    domain,
                    first,
                    first_version,
                    second,
                    second_version,
                });
            }
        }
    }
    let opset = |(domain, (version, _))| OperatorSetIdProto { domain, version };
    Ok(known.into_iter().map(opset).collect())
}

/// The functions of all models, if they agree.
pub(super) fn functions(parts: &[Part<'_>]) -> Result<Vec<FunctionProto>, ComposeError> {
    let mut known: Vec<(&FunctionProto, &str)> = Vec::new();
    for part in parts {
        for function in &part.model.proto().functions {
            let same = |(other, _): &&(&FunctionProto, &str)| {
                (&other.name, &other.domain, &other.overload)
                    == (&function.name, &function.domain, &function.overload)
            };
            match known.iter().find(same) {
                Some((other, _)) if *other == function => {}
                Some((_, first)) => {
                    let (first, second) = ((*first).to_owned(), part.name.to_owned());
                    let function = format!("{}::{}", function.domain, function.name);
                    return Err(ComposeError::Function { function, first, second });
                }
                None => known.push((function, part.name)),
            }
        }
    }
    Ok(known.into_iter().map(|(function, _)| function.clone()).collect())
}
