//! A lowered graph, cut anywhere and run piece by piece, gives the bits of the whole.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

use common::inputs::{minilm_inputs, sample};
use common::{
    GTE_SMALL, MAGIKA, MINILM, Named, RAPIDOCR_CLASSIFY, RAPIDOCR_DETECT, RAPIDOCR_RECOGNISE,
    SILERO_VAD, Scratch, block_on, options, outputs,
};
use holdfast_devices::cpu::{CpuEngine, CpuOptions, Target};
use holdfast_devices::{Device, Input, Loaded, Output, Program, RequestId, Segment, Step};
use holdfast_graph::{Model, cut, infer, topology};
use holdfast_models::{StoredGraph, hashed_weights};
use holdfast_testkit::{Architecture, LayerNorm, Numbers, Recipe, Style, random};
use proptest::prelude::*;

/// One store, and an engine over it for each number of threads.
struct Bench {
    scratch: Scratch,
    engines: [CpuEngine; 2],
}

static BENCH: LazyLock<Bench> = LazyLock::new(|| {
    let scratch = Scratch::new();
    let engines = [1, 2].map(|threads| scratch.engine_with(CpuOptions { threads, ..options() }));
    Bench { scratch, engines }
});

/// A failure is reported with its seed; smaller seeds are no simpler.
fn cases(cases: u32) -> ProptestConfig {
    let failure_persistence = None;
    ProptestConfig { cases, failure_persistence, max_shrink_iters: 0, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn pieces_of_an_architecture_give_the_bits_of_the_whole(seed: u64) {
        let architectures = [
            Architecture::Bert,
            Architecture::DistilBert,
            Architecture::T5Encoder,
            Architecture::Vit,
            Architecture::WhisperEncoder,
            Architecture::Llama,
        ];
        let layer_norms = [LayerNorm::Operator, LayerNorm::Decomposed];
        // In turns rather than by chance, so that each appears with both norms.
        static TURN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let turn = TURN.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let architecture = architectures[turn % architectures.len()];
        let layer_norm = layer_norms[turn / architectures.len() % 2];
        let style = Style { layer_norm, ..Style::default() };
        let recipe = Recipe { style, ..Recipe::tiny(seed) };
        let model = architecture.build(&recipe).unwrap().swap_remove(0).model;
        let graph = BENCH.scratch.import(architecture.name(), &model);
        let inputs = [1, 3].map(|batch| {
            let sizes =
                [("batch", batch), ("sequence", 7), ("past_sequence", 4), ("total_sequence", 11)];
            sample(&model.inputs(), &sizes, seed)
        });
        check(&graph, &inputs, seed);
    }
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn pieces_of_a_random_graph_give_the_bits_of_the_whole(seed: u64) {
        let model = random::graph(seed);
        let graph = BENCH.scratch.import("random", &model);
        check(&graph, &[random::sample_inputs(&model, seed)], seed);
    }
}

proptest! {
    #![proptest_config(cases(4))]

    #[test]
    fn pieces_of_minilm_give_the_bits_of_the_whole(seed: u64) {
        static GRAPH: LazyLock<StoredGraph> =
            LazyLock::new(|| BENCH.scratch.import_third_party(MINILM));
        let inputs = [1, 3].map(|batch| minilm_inputs(batch, 9));
        check(&GRAPH, &inputs, seed);
    }

    #[test]
    fn pieces_of_a_real_convolutional_network_give_the_bits_of_the_whole(seed: u64) {
        static GRAPH: LazyLock<StoredGraph> =
            LazyLock::new(|| BENCH.scratch.import_third_party(RAPIDOCR_CLASSIFY));
        let model = BENCH.scratch.store.open_graph(&GRAPH).unwrap();
        let inputs = [1, 3].map(|batch| {
            // The classifier takes pictures of 48 × 192, but does not declare it.
            let mut declared = model.inputs();
            let dims = [batch, 3, 48, 192].map(holdfast_testkit::fixed);
            declared[0].dims = Some(dims.to_vec());
            sample(&declared, &[], seed)
        });
        check(&GRAPH, &inputs, seed);
    }
}

#[test]
fn a_real_lowered_graph_can_be_cut_at_every_value() {
    let scratch = Scratch::new();
    let models = [
        MINILM,
        GTE_SMALL,
        MAGIKA,
        SILERO_VAD,
        RAPIDOCR_DETECT,
        RAPIDOCR_RECOGNISE,
        RAPIDOCR_CLASSIFY,
    ];
    for path in models {
        let graph = scratch.import_third_party(path);
        for target in [Target::Cpu, Target::WebGpu, Target::WebNn] {
            let lowered = block_on(scratch.engine.lower(&graph, target, &BTreeMap::new()));
            let model = scratch.store.open_graph(&lowered.unwrap()).unwrap();
            let types = infer::dtypes(&model);
            let nodes = &model.graph().node;
            let values = nodes.iter().flat_map(|node| node.output.iter().map(move |v| (node, v)));
            for (node, value) in values.filter(|(_, value)| !value.is_empty()) {
                let operator = &node.op_type;
                assert!(types.contains_key(value), "{path} for {target:?}: {operator} `{value}`");
            }
        }
    }
}

/// Lowers a graph, cuts it at random, and compares the pieces with the whole.
fn check(original: &StoredGraph, inputs: &[Named], seed: u64) {
    let Bench { scratch, engines } = &*BENCH;
    let lowered = block_on(scratch.lower(original));
    let whole = scratch.store.open_graph(&lowered).unwrap();
    if whole.graph().node.len() < 2 {
        // The optimiser folded nearly everything.
        return;
    }
    let mut numbers = Numbers::labelled(seed, "cut");
    let pieces = pieces(&whole, &mut numbers);
    let stored: Vec<StoredGraph> =
        pieces.iter().map(|piece| store(&lowered, piece, seed)).collect();
    for engine in engines {
        block_on(async {
            let loaded_whole = engine.load(Segment::new(lowered.clone())).await.unwrap();
            let mut loaded = Vec::new();
            for piece in &stored {
                loaded.push(engine.load(Segment::new(piece.clone())).await.unwrap());
            }
            for inputs in inputs {
                let computed = computed_outputs(&whole);
                let program = Program::single(
                    scratch.request(),
                    loaded_whole.id,
                    inputs.clone(),
                    computed.clone(),
                );
                let expected = outputs(engine.run(program).await.unwrap());
                let program = chain(&loaded, &computed, inputs);
                let found = outputs(engine.run(program).await.unwrap());
                for (name, expected) in &expected {
                    assert!(found[name] == *expected, "`{name}` differs; cut at {}", list(&pieces));
                }
                assert_eq!(found.len(), expected.len());
            }
            for id in loaded.iter().map(|loaded| loaded.id).chain([loaded_whole.id]) {
                // Two pieces may be one segment.
                let _ = engine.unload(id).await;
            }
        });
    }
}

/// Two to five pieces: a random order in which the nodes can run, split at random places.
fn pieces(model: &Model, numbers: &mut Numbers) -> Vec<Model> {
    let graph = model.graph();
    let order = random_order(model, numbers);
    let count = (2 + numbers.below(4)).min(order.len());
    let mut places: Vec<usize> = (1..order.len()).collect();
    numbers.shuffle(&mut places);
    places.truncate(count - 1);
    places.sort();

    let mut piece_of_node = vec![0; graph.node.len()];
    for (position, &node) in order.iter().enumerate() {
        piece_of_node[node] = places.iter().filter(|&&place| place <= position).count();
    }
    let mut producer: HashMap<&str, usize> = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        let named = node.output.iter().filter(|name| !name.is_empty());
        producer.extend(named.map(|name| (name.as_str(), piece_of_node[index])));
    }
    // What each piece takes from earlier ones; what is taken from it, or returned by the graph.
    let mut taken = vec![Vec::new(); count];
    let mut given = vec![Vec::new(); count];
    let mut crosses = |name, into: usize| {
        if let Some(&from) = producer.get(name)
            && from != into
        {
            taken.get_mut(into).into_iter().for_each(|taken: &mut Vec<&str>| taken.push(name));
            given[from].push(name);
        }
    };
    for (index, node) in graph.node.iter().enumerate() {
        topology::needs(node).into_iter().for_each(|name| crosses(name, piece_of_node[index]));
    }
    graph.output.iter().for_each(|output| crosses(&output.name, count));
    let cut = |(taken, given): (Vec<&str>, Vec<&str>)| {
        let given = unique(given);
        // Nodes that nothing needs are no piece.
        (!given.is_empty()).then(|| cut(model, &unique(taken), &given).unwrap())
    };
    taken.into_iter().zip(given).filter_map(cut).collect()
}

fn unique(names: Vec<&str>) -> Vec<&str> {
    let mut seen = HashSet::new();
    names.into_iter().filter(|name| seen.insert(*name)).collect()
}

fn random_order(model: &Model, numbers: &mut Numbers) -> Vec<usize> {
    let nodes = &model.graph().node;
    let produced: HashSet<&str> =
        nodes.iter().flat_map(|node| &node.output).map(String::as_str).collect();
    let mut waiting: Vec<(usize, HashSet<&str>)> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| {
            let needs = topology::needs(node).into_iter();
            (index, needs.filter(|name| produced.contains(name)).collect())
        })
        .collect();
    let mut order = Vec::new();
    while !waiting.is_empty() {
        let ready: Vec<usize> =
            (0..waiting.len()).filter(|&place| waiting[place].1.is_empty()).collect();
        let (index, _) = waiting.swap_remove(*numbers.pick(&ready).unwrap());
        order.push(index);
        for (_, needs) in &mut waiting {
            needs.retain(|name| !nodes[index].output.iter().any(|output| output == name));
        }
    }
    order
}

fn store(lowered: &StoredGraph, piece: &Model, seed: u64) -> StoredGraph {
    let by = format!("piece of a test with seed {seed} for {:?}", names(&piece.outputs()));
    BENCH.scratch.store.put_derived(&lowered.graph, &by, piece, &hashed_weights(piece)).unwrap()
}

/// Outputs that a node gives. The optimiser may turn one into a constant, which no piece has.
fn computed_outputs(model: &Model) -> Vec<String> {
    let produced: HashSet<&String> =
        model.graph().node.iter().flat_map(|node| &node.output).collect();
    let outputs = model.outputs().into_iter().map(|output| output.name);
    outputs.filter(|name| produced.contains(name)).collect()
}

/// The pieces as one program.
fn chain(pieces: &[Loaded], wanted: &[String], inputs: &Named) -> Program {
    let mut source: BTreeMap<&str, Input> = BTreeMap::new();
    for (name, tensor) in inputs {
        source.insert(name, Input::Inline(tensor.clone()));
    }
    let mut steps = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let take = |name: &String| (name.clone(), source[name.as_str()].clone());
        let give = |name: &String| {
            let returned = wanted.contains(name);
            (name.clone(), if returned { Output::Return } else { Output::Pass })
        };
        steps.push(Step {
            segment: piece.id,
            inputs: names(&piece.inputs).iter().map(take).collect(),
            outputs: names(&piece.outputs).iter().map(give).collect(),
        });
        for output in &piece.outputs {
            let from = Input::Step { step: number, output: output.name.clone() };
            source.insert(&output.name, from);
        }
    }
    Program { request: RequestId(BENCH.scratch.request()), deadline: None, steps }
}

fn names(values: &[holdfast_graph::Value]) -> Vec<String> {
    values.iter().map(|value| value.name.clone()).collect()
}

fn list(pieces: &[Model]) -> String {
    let outputs: Vec<String> =
        pieces.iter().map(|piece| names(&piece.outputs()).join(", ")).collect();
    outputs.join(" | ")
}
