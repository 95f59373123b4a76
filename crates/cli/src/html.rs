//! Pages that need nothing else: one file with its style inside.

/// What all pages look like.
const STYLE: &str = include_str!("page.css");

/// A whole page. `body` is HTML, the title is not.
pub(crate) fn page(title: &str, more_style: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{more_style}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

/// Names and what they stand for. Both are text.
pub(crate) fn list(facts: &[(&str, String)]) -> String {
    let rows = facts
        .iter()
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value)));
    format!("<dl>\n{}</dl>\n", rows.collect::<String>())
}

/// A table. All of it is text.
pub(crate) fn table(caption: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    let titles: String =
        header.iter().map(|title| format!("<th scope=\"col\">{}</th>", escape(title))).collect();
    let row = |cells: &Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    format!(
        "<div class=\"picture\"><table>\n<caption>{}</caption>\n<thead><tr>{titles}</tr></thead>\n\
         <tbody>\n{}</tbody>\n</table></div>\n",
        escape(caption),
        rows.iter().map(row).collect::<String>()
    )
}

/// A text that means itself in HTML.
pub(crate) fn escape(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('"', "&quot;")
}
