//! The sets of models that the demo runs, and what they are fed.

use std::collections::BTreeMap;

use anyhow::Context;
use holdfast_models::input::{Sidecars, TextInput};
use holdfast_testkit::Size;
use holdfast_testkit::synth::{Options, synth};
use serde::{Deserialize, Serialize};

use super::classifiers::{self, Trained};
use super::texts::{SHOWN, Task, tasks};
use super::workshop::Workshop;
use super::{minilm, train};
use crate::args::{DemoArgs, Global, Scenario, ShareTarget};

/// Models that are in the workshop's store, and their input.
pub(crate) struct Set {
    /// The models, by name.
    pub(crate) models: Vec<String>,
    pub(crate) input: Input,
    /// The classifiers, where the set has some.
    pub(crate) trained: Vec<Trained>,
}

/// What the models of a set are fed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Input {
    /// Texts, through the tokenizer: a batch for each round, all of one size, and some to show.
    Texts { rounds: Vec<Vec<String>>, shown: Vec<String>, tokens: usize },
    /// What each model declares, filled with other numbers in every round.
    Made { tokens: usize },
}

impl Input {
    /// How many rounds there are inputs for.
    pub(crate) fn rounds(&self) -> usize {
        match self {
            Input::Texts { rounds, .. } => rounds.len(),
            Input::Made { .. } => usize::MAX,
        }
    }

    /// Rows and tokens of one input.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        match self {
            Input::Texts { rounds, tokens, .. } => (rounds.first().map_or(1, Vec::len), *tokens),
            Input::Made { tokens } => (1, *tokens),
        }
    }
}

impl Scenario {
    /// All of them, in the order in which they are shown.
    pub(crate) const ALL: [Scenario; 4] =
        [Scenario::Classifiers, Scenario::Families, Scenario::Adapters, Scenario::Unrelated];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Scenario::Classifiers => "classifiers",
            Scenario::Families => "families",
            Scenario::Adapters => "adapters",
            Scenario::Unrelated => "unrelated",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Scenario::Classifiers => "Three classifiers on one MiniLM",
            Scenario::Families => "Families for text, pictures and sound",
            Scenario::Adapters => "Four adapters on one base",
            Scenario::Unrelated => "Models that have nothing in common",
        }
    }

    /// What it is there to show.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Scenario::Classifiers => {
                "Each is a whole model with its own copy of MiniLM. The trunk is found, held and \
                 computed once."
            }
            Scenario::Families => {
                "Three heads on each of three encoders, all in play together: three trunks are \
                 found."
            }
            Scenario::Adapters => {
                "They part at the first adapter, so little is computed alike; but nearly all their \
                 weights are the same, and are held once."
            }
            Scenario::Unrelated => "Nothing can be shared. What looking for it costs is seen here.",
        }
    }

    /// Makes its models; `None` with a reason where they cannot be made here.
    pub(crate) async fn make(
        self,
        global: &Global,
        args: &DemoArgs,
        workshop: &Workshop,
    ) -> anyhow::Result<Result<Set, String>> {
        let scale = Scale::of(args.hardware);
        workshop.spinner.say(format!("making the models of {}", self.name()));
        Ok(Ok(match self {
            Scenario::Classifiers => {
                let Some(base) = minilm::bring(global, workshop)? else {
                    return Ok(Err(minilm::HOW_TO_GET.to_owned()));
                };
                let tasks = tasks()?;
                let keep = args.keep.as_deref();
                let trained = classifiers::make(workshop, &base, &tasks, keep).await?;
                let sidecars: Sidecars = workshop.store.files(&base)?.into_iter().collect();
                let graph = workshop.store.open_graph(&minilm::component(&base)?.graph)?;
                let text = TextInput::new(&sidecars, &graph.inputs())?;
                let models = trained.iter().map(|classifier| classifier.name.clone()).collect();
                Set { models, input: texts(&text, &tasks, scale.rows)?, trained }
            }
            Scenario::Families => Set::made(families(workshop, &scale)?, &scale),
            Scenario::Adapters => {
                Set::made(add_all(workshop, "adapters", "", &scale.base, 4, 3)?, &scale)
            }
            Scenario::Unrelated => {
                let mut models = Vec::new();
                for (seed, kind) in (11..).zip(["bert", "distilbert", "vit"]) {
                    models.extend(add_all(workshop, kind, kind, &scale.size, 1, seed)?);
                }
                Set::made(models, &scale)
            }
        }))
    }
}

impl Set {
    fn made(models: Vec<String>, scale: &Scale) -> Set {
        Set { models, input: Input::Made { tokens: scale.tokens }, trained: Vec::new() }
    }
}

/// How large models and inputs are: enough to show, and done in time.
struct Scale {
    size: Size,
    /// The base of adapters.
    base: Size,
    tokens: usize,
    /// Texts at once.
    rows: usize,
}

impl Scale {
    fn of(hardware: ShareTarget) -> Scale {
        let size = Size { positions: 256, ..Size::new(4, 256) };
        let scale = Scale { size, base: Size::new(6, 384), tokens: 64, rows: 8 };
        match hardware {
            ShareTarget::Cpu => scale,
            ShareTarget::Wasm | ShareTarget::Webnn => {
                Scale { base: Size::new(4, 256), tokens: 32, ..scale }
            }
            // Most machines without a GPU have a software adapter, which is that much slower.
            ShareTarget::Webgpu => {
                Scale { size: Size::tiny(), base: Size::tiny(), tokens: 16, rows: 1 }
            }
        }
    }
}

/// Adds the models of a kind to the workshop's store, under its own names or a given one.
fn add_all(
    workshop: &Workshop,
    kind: &str,
    name: &str,
    size: &Size,
    count: usize,
    seed: u64,
) -> anyhow::Result<Vec<String>> {
    let options = Options { size: size.clone(), count, seed, ..Options::default() };
    let mut names = Vec::new();
    for member in synth(kind.parse()?, &options)? {
        let name = if name.is_empty() { member.stem } else { name.to_owned() };
        workshop.add(&name, &member.model)?;
        names.push(name);
    }
    Ok(names)
}

/// Three heads on an encoder for each kind of input.
fn families(workshop: &Workshop, scale: &Scale) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    let encoders = [("text", "bert"), ("picture", "vit"), ("sound", "whisper-encoder")];
    for (seed, (input, kind)) in (1..).zip(encoders) {
        let options = Options { size: scale.size.clone(), seed, ..Options::default() };
        let encoder = synth(kind.parse()?, &options)?.swap_remove(0).model;
        for number in 1..=3 {
            let head = train::draw(scale.size.hidden, number + 1, seed * 10 + number as u64)?;
            let name = format!("{input}-{number}");
            workshop.add(&name, &head.on(encoder.clone())?)?;
            names.push(name);
        }
    }
    Ok(names)
}

/// Rounds of texts that all have as many tokens, so that they take as long, and some to show.
fn texts(text: &TextInput, tasks: &[Task], rows: usize) -> anyhow::Result<Input> {
    let mut by_length: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for labelled in tasks.iter().flat_map(|task| &task.texts) {
        let prepared = text.prepare(&[labelled.text])?;
        let tokens = prepared.tensors.first().and_then(|(_, ids)| ids.dims().last().copied());
        by_length.entry(tokens.unwrap_or(0)).or_default().push(labelled.text.to_owned());
    }
    let most = by_length.into_iter().max_by_key(|(_, texts)| texts.len());
    let (tokens, texts) = most.context("there are no texts")?;
    // Each begins with another text, so no two rounds are the same.
    let round = |first: usize| {
        let rows = first..first + rows;
        rows.map(|row| texts[row % texts.len()].clone()).collect()
    };
    let rounds = (0..texts.len()).map(round).collect();
    let shown = SHOWN.map(str::to_owned).to_vec();
    Ok(Input::Texts { rounds, shown, tokens })
}
