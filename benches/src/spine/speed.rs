//! S2: the engine against a plain session of the same library.

use anyhow::Result;

use super::cases::{Bench, MINILM, Plain, REAL, inputs};
use crate::record::{Goal, Record};
use crate::timing::alternate;

pub(super) fn run(record: &mut Record) -> Result<()> {
    let bench = Bench::new()?;
    let peer = "plain session, default settings";
    let loaded = bench.load(bench.segment(&MINILM.path(), "minilm")?)?;
    let mut plain = Plain::new(&bench, &MINILM.path())?;
    for batch in [1, 8] {
        let feed = inputs(&MINILM, &loaded.inputs, batch, 128)?;
        let rounds = if batch == 1 { 60 } else { 20 };
        let [ours, theirs] = alternate(
            rounds,
            [&mut || bench.run(&loaded, &feed).map(drop), &mut || plain.run(&feed).map(drop)],
        )?;
        record.add(
            &format!("S2.batch{batch}"),
            &format!("MiniLM, batch {batch}, 128 tokens: time of a plain session"),
            ours.as_secs_f64() / theirs.as_secs_f64(),
            "×",
            peer,
            Goal::AtMost(1.03),
        );
    }
    for case in REAL.iter().filter(|case| case.id.starts_with("rapidocr")) {
        let loaded = bench.load(bench.segment(&case.path(), case.id)?)?;
        let mut plain = Plain::new(&bench, &case.path())?;
        let feed = inputs(case, &loaded.inputs, 1, 1)?;
        let [ours, theirs] = alternate(
            20,
            [&mut || bench.run(&loaded, &feed).map(drop), &mut || plain.run(&feed).map(drop)],
        )?;
        record.add(
            &format!("S2.{}", case.id),
            &format!("{}: time of a plain session", case.id),
            ours.as_secs_f64() / theirs.as_secs_f64(),
            "×",
            peer,
            Goal::Report,
        );
    }
    Ok(())
}
