//! Which values are in memory at the same time.

use std::collections::{HashMap, HashSet};

use crate::infer::operator::{self, Work};
use crate::infer::{Fact, Scope};
use crate::proto::{GraphProto, NodeProto};
use crate::topology::{needs, order};

/// The activations that are there as a graph runs, node by node.
pub(super) struct Memory<'a> {
    /// The value whose memory each view is.
    viewed: HashMap<&'a str, &'a str>,
    /// Bytes of the values that this graph makes or is given.
    byte_len: HashMap<&'a str, u64>,
    /// The values that are not needed after each step.
    ends: HashMap<usize, Vec<&'a str>>,
    now: u64,
    peak: u64,
}

impl<'a> Memory<'a> {
    /// A graph that was given its inputs and has not run yet.
    pub(super) fn new(
        graph: &'a GraphProto,
        facts: &Scope<'_>,
        weights: &HashSet<&str>,
    ) -> Memory<'a> {
        let order = order(graph).unwrap_or_default();
        let mut memory = Memory {
            viewed: views(graph, &order),
            byte_len: HashMap::new(),
            ends: HashMap::new(),
            now: 0,
            peak: 0,
        };
        let inputs = graph.input.iter().map(|input| input.name.as_str());
        let inputs: Vec<&str> = inputs.filter(|name| !weights.contains(name)).collect();
        let made = graph.node.iter().flat_map(|node| &node.output).map(String::as_str);
        for name in inputs.iter().copied().chain(made) {
            if !weights.contains(name) && !memory.viewed.contains_key(name) {
                memory.byte_len.insert(name, facts.get(name).map_or(0, Fact::byte_len));
            }
        }

        let mut last: HashMap<&str, usize> = HashMap::new();
        for (step, &index) in order.iter().enumerate() {
            let node = &graph.node[index];
            let used = needs(node).into_iter().chain(node.output.iter().map(String::as_str));
            for name in used {
                last.insert(memory.root(name), step);
            }
        }
        // Inputs that nothing reads are there from the start all the same.
        for name in &inputs {
            last.entry(name).or_insert(0);
        }
        let returned: HashSet<&str> =
            graph.output.iter().map(|output| memory.root(&output.name)).collect();
        for (name, step) in last {
            if !returned.contains(name) && memory.byte_len.contains_key(name) {
                memory.ends.entry(step).or_default().push(name);
            }
        }
        let given = inputs.iter().filter_map(|name| memory.byte_len.get(name));
        memory.now = given.fold(0, |sum, bytes| sum.saturating_add(*bytes));
        memory.peak = memory.now;
        memory
    }

    /// Runs the next node, the bodies of which need `inner` bytes at their worst moment.
    pub(super) fn step(&mut self, step: usize, node: &NodeProto, inner: u64) {
        // What a body returns is already in its own memory.
        self.peak = self.peak.max(self.now.saturating_add(inner));
        let made = node.output.iter().filter_map(|name| self.byte_len.get(name.as_str()));
        self.now = made.fold(self.now, |sum, bytes| sum.saturating_add(*bytes));
        self.peak = self.peak.max(self.now);
        let ended = self.ends.remove(&step).unwrap_or_default();
        let freed = ended.iter().filter_map(|name| self.byte_len.get(name));
        self.now = freed.fold(self.now, |rest, bytes| rest.saturating_sub(*bytes));
    }

    /// Bytes at the worst moment so far.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }

    fn root(&self, name: &'a str) -> &'a str {
        self.viewed.get(name).copied().unwrap_or(name)
    }
}

/// For each view, the value that is not one whose memory it is.
fn views<'a>(graph: &'a GraphProto, order: &[usize]) -> HashMap<&'a str, &'a str> {
    let mut viewed: HashMap<&str, &str> = HashMap::new();
    for &index in order {
        let node = &graph.node[index];
        let row = operator::find(&node.domain, &node.op_type);
        let is_view = row.is_some_and(|row| matches!(row.work, Work::View));
        if let (true, Some(input), Some(output)) =
            (is_view, node.input.first(), node.output.first())
        {
            let root = viewed.get(input.as_str()).copied().unwrap_or(input);
            viewed.insert(output, root);
        }
    }
    viewed
}
