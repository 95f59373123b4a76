//! What the demo found out, and as JSON.

use std::time::Duration;

use holdfast_devices::DeviceInfo;
use holdfast_graph::share::SharePlan;
use serde_json::{Value, json};

use super::classifiers::Trained;
use super::machine::Machine;
use super::measure::{Figures, Measured};
use super::scenarios::Set;
use crate::args::Scenario;
use crate::commands::share::in_common::InCommon;

pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) hardware: &'static str,
    pub(crate) compared: bool,
    /// In megabytes.
    pub(crate) max_memory: Option<u32>,
    pub(crate) shown: Vec<Shown>,
    /// What could not be shown, and why.
    pub(crate) left_out: Vec<(Scenario, String)>,
}

/// One set of models.
pub(crate) struct Shown {
    pub(crate) scenario: Scenario,
    pub(crate) set: Set,
    pub(crate) picture: Picture,
    pub(crate) measured: Measured,
}

/// What is told of a plan.
pub(crate) struct Picture {
    pub(crate) svg: String,
    pub(crate) trunks: usize,
    /// Shared, and each model on its own.
    pub(crate) flops: (u64, u64),
    /// Each weight once, and each model on its own.
    pub(crate) weight_bytes: (u64, u64),
}

impl Picture {
    pub(crate) fn of(plan: &SharePlan) -> Picture {
        Picture {
            svg: plan.to_svg(),
            trunks: plan.trunks().count(),
            flops: plan.flops(),
            weight_bytes: (InCommon::of(plan).bytes_once, plan.weight_bytes().1),
        }
    }
}

impl Shown {
    /// The side without sharing, if there is one.
    pub(crate) fn unshared(&self) -> Option<&Figures> {
        self.measured.unshared.as_ref()?.as_ref().ok()
    }

    /// Why there is none although it was asked for.
    pub(crate) fn did_not_fit(&self) -> Option<&str> {
        self.measured.unshared.as_ref()?.as_ref().err().map(String::as_str)
    }

    /// Time with sharing by time without.
    pub(crate) fn time_ratio(&self) -> Option<f64> {
        let without = self.unshared()?.fastest().as_secs_f64();
        (without > 0.0).then(|| self.measured.shared.fastest().as_secs_f64() / without)
    }

    /// Memory with sharing by memory without.
    pub(crate) fn memory_ratio(&self) -> Option<f64> {
        let (with, without) = self.measured.shared.memory.zip(self.unshared()?.memory)?;
        (without > 0).then(|| with as f64 / without as f64)
    }

    /// What one input is.
    pub(crate) fn input(&self) -> String {
        let (rows, tokens) = self.set.input.sizes();
        match &self.set.input {
            super::scenarios::Input::Texts { .. } if rows == 1 => {
                format!("a text of {tokens} tokens")
            }
            super::scenarios::Input::Texts { .. } => format!("{rows} texts of {tokens} tokens"),
            super::scenarios::Input::Made { .. } => {
                format!("made inputs ({tokens} tokens where there are tokens)")
            }
        }
    }

    /// What computed on either side, each once.
    pub(crate) fn devices(&self) -> Vec<&DeviceInfo> {
        let unshared = self.unshared().into_iter().flat_map(|side| &side.devices);
        let mut devices: Vec<&DeviceInfo> = Vec::new();
        for device in self.measured.shared.devices.iter().chain(unshared) {
            let same = |known: &&DeviceInfo| {
                (&known.engine, &known.adapter, &known.backend)
                    == (&device.engine, &device.adapter, &device.backend)
            };
            if !devices.iter().any(same) {
                devices.push(device);
            }
        }
        devices
    }
}

impl Report {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "machine": self.machine.to_json(),
            "hardware": self.hardware,
            "compared": self.compared,
            "max_memory_mb": self.max_memory,
            "sets": self.shown.iter().map(shown_json).collect::<Vec<_>>(),
            "left_out": self.left_out.iter().map(|(scenario, reason)| {
                json!({ "set": scenario.name(), "reason": reason })
            }).collect::<Vec<_>>(),
        })
    }
}

fn shown_json(shown: &Shown) -> Value {
    let Measured { shared, unshared, shown: texts } = &shown.measured;
    json!({
        "set": shown.scenario.name(),
        "models": shown.set.models,
        "input": shown.input(),
        "classifiers": shown.set.trained.iter().map(trained_json).collect::<Vec<_>>(),
        "texts": texts.iter().map(|(text, labels)| {
            let labels: serde_json::Map<String, Value> =
                shown.set.models.iter().cloned().zip(labels.iter().map(|l| json!(l))).collect();
            json!({ "text": text, "labels": labels })
        }).collect::<Vec<_>>(),
        "plan": {
            "trunks": shown.picture.trunks,
            "flops": shown.picture.flops.0,
            "flops_apart": shown.picture.flops.1,
            "weight_bytes": shown.picture.weight_bytes.0,
            "weight_bytes_apart": shown.picture.weight_bytes.1,
        },
        "with_sharing": figures_json(shared),
        "without_sharing": unshared.as_ref().and_then(|side| side.as_ref().ok()).map(figures_json),
        "did_not_fit": shown.did_not_fit(),
        // Other bits are an error, so there is no `false`.
        "same_bits": shown.unshared().map(|_| true),
        "time_ratio": shown.time_ratio(),
        "memory_ratio": shown.memory_ratio(),
    })
}

fn trained_json(trained: &Trained) -> Value {
    json!({
        "model": trained.name,
        "labels": trained.labels,
        "trained_on": trained.trained_on,
        "held_out": trained.held_out,
        "right": trained.right,
    })
}

fn figures_json(figures: &Figures) -> Value {
    let ms = |duration: &Duration| duration.as_secs_f64() * 1e3;
    json!({
        "memory_bytes": figures.memory,
        "fastest_ms": ms(&figures.fastest()),
        "run_ms": figures.times.iter().map(ms).collect::<Vec<_>>(),
        "reused_tensors": figures.reused_tensors,
        "reused_bytes": figures.reused_bytes,
        "devices": figures.devices.iter().map(|device| json!({
            "name": device.name,
            "backend": device.backend,
            "engine": device.engine,
            "adapter": device.adapter,
            "accelerated": device.accelerated,
        })).collect::<Vec<_>>(),
    })
}
