//! The demo's report: one HTML file that needs nothing else.

use super::bars::{Bar, bars};
use super::measure::Figures;
use super::report::{Report, Shown};
use super::words;
use crate::html::{self, escape, list};
use crate::output::{bytes, milliseconds};

/// The whole page.
pub(crate) fn page(report: &Report) -> String {
    let sections: String = report.shown.iter().map(|shown| section(report, shown)).collect();
    let left_out: String = report
        .left_out
        .iter()
        .map(|(scenario, reason)| {
            format!(
                "<section><h2>{}</h2><p>Left out: {}</p></section>\n",
                escape(scenario.title()),
                escape(reason)
            )
        })
        .collect();
    let body = format!(
        "<p>{}</p>\n{}{sections}{left_out}{}",
        escape(&introduction(report)),
        table(report),
        machine(report)
    );
    html::page("Holdfast: what sharing saves", "", &body)
}

fn introduction(report: &Report) -> String {
    let compared = match report.compared {
        true => {
            " Each set was also run without sharing, in turn with it, and every answer had the \
             same bits."
        }
        false => "",
    };
    format!(
        "Sets of models, run together on {}. What their models have in common was found by \
         structure, held once and computed once.{compared} {}.",
        report.hardware,
        capitalised(words::explanation(report))
    )
}

/// All sets at a glance.
fn table(report: &Report) -> String {
    if !report.compared || report.shown.is_empty() {
        return String::new();
    }
    let ratio = |ratio: Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    let rows: String = report
        .shown
        .iter()
        .map(|shown| {
            format!(
                "<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th><td>{}</td><td>{}</td></tr>\n",
                shown.scenario.name(),
                escape(shown.scenario.title()),
                ratio(shown.memory_ratio()),
                ratio(shown.time_ratio())
            )
        })
        .collect();
    format!(
        "<table>\n<caption>With sharing, as a part of without</caption>\n\
         <tr><th scope=\"col\">set</th><th scope=\"col\">memory</th><th scope=\"col\">time</th></tr>\n\
         {rows}</table>\n"
    )
}

fn section(report: &Report, shown: &Shown) -> String {
    let scenario = shown.scenario;
    let mut html = format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n",
        scenario.name(),
        escape(scenario.title()),
        escape(scenario.about())
    );
    html.push_str("<div class=\"plots\">\n");
    html.push_str(&plot("memory", shown, &|side| {
        side.memory.map(|memory| (memory as f64, bytes(memory)))
    }));
    html.push_str(&plot("time of one input through all models", shown, &|side| {
        let fastest = side.fastest();
        Some((fastest.as_secs_f64(), milliseconds(fastest)))
    }));
    html.push_str("</div>\n");
    html.push_str(&classifiers(shown));
    html.push_str(&format!("<div class=\"picture\">{}</div>\n", shown.picture.svg));
    html.push_str(&facts(report, shown));
    html.push_str("</section>\n");
    html
}

fn plot(title: &str, shown: &Shown, of: &dyn Fn(&Figures) -> Option<(f64, String)>) -> String {
    let sides =
        [("with", true, Some(&shown.measured.shared)), ("without", false, shown.unshared())];
    let found = sides.into_iter().filter_map(|(name, shared, side)| {
        let (length, value) = of(side?)?;
        Some(Bar { name, value, length, shared })
    });
    let found: Vec<Bar> = found.collect();
    if found.is_empty() { String::new() } else { bars(title, &found) }
}

/// What the classifiers are worth and what they say.
fn classifiers(shown: &Shown) -> String {
    if shown.set.trained.is_empty() {
        return String::new();
    }
    let trained: String = shown
        .set
        .trained
        .iter()
        .map(|trained| {
            format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{} of {}</td></tr>\n",
                escape(&trained.name),
                escape(&trained.labels.join(", ")),
                trained.right,
                trained.held_out
            )
        })
        .collect();
    let said: String = shown
        .measured
        .shown
        .iter()
        .map(|(text, labels)| {
            format!("<li>{} <b>{}</b></li>\n", escape(text), escape(&labels.join(", ")))
        })
        .collect();
    format!(
        "<table>\n<tr><th scope=\"col\">classifier</th><th scope=\"col\">classes</th>\
         <th scope=\"col\">right, on texts not trained on</th></tr>\n{trained}</table>\n\
         <ul>\n{said}</ul>\n"
    )
}

fn facts(report: &Report, shown: &Shown) -> String {
    let mut facts = vec![
        ("models", shown.set.models.join(", ")),
        ("plan", words::plan(shown)),
        ("one input", shown.input()),
        ("runs", format!("{} in turn", shown.measured.shared.times.len())),
    ];
    for device in shown.devices() {
        let accelerated = if device.accelerated { "accelerated" } else { "no accelerator" };
        let (backend, engine, adapter) = (&device.backend, &device.engine, &device.adapter);
        facts.push(("ran on", format!("{backend}: {engine} on {adapter}, {accelerated}")));
    }
    let shared = &shown.measured.shared;
    if shared.reused_tensors > 0 {
        let size = bytes(shared.reused_bytes);
        facts.push(("not computed again", format!("{} tensors, {size}", shared.reused_tensors)));
    }
    match (report.compared, shown.did_not_fit()) {
        (true, Some(reason)) => facts.push(("without sharing", reason.to_owned())),
        (true, None) => facts.push(("answers", "the same bits on both sides".to_owned())),
        (false, _) => {}
    }
    list(&facts)
}

fn machine(report: &Report) -> String {
    let machine = &report.machine;
    let memory = machine.memory_bytes.map_or("unknown".to_owned(), bytes);
    let mut facts = vec![
        ("processor", machine.processor.clone()),
        ("cores", machine.cores.to_string()),
        ("memory", memory),
        ("system", machine.system.clone()),
        ("Holdfast", machine.holdfast.to_owned()),
        ("CPU engine", machine.engine.clone()),
    ];
    if let Some(limit) = report.max_memory {
        facts.push(("memory for models", format!("at most {limit} MB on each side")));
    }
    format!("<section>\n<h2>Machine</h2>\n{}</section>\n", list(&facts))
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().chain(characters).collect())
}
