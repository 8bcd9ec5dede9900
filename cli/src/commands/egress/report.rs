//! `forebay egress report`

use std::path::{Path, PathBuf};

use forebay_cas::ErrorClass;
use forebay_cas::ledger::read_ledgers;
use forebay_policy::{Cost, Month, RateCard, Report, ReportError, Row, Summary, Usage};
use serde_json::{Value, json};

use super::card;
use super::table::{TextTable, gigabytes};
use crate::args::egress::{ReportArgs, ReportFormat};
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// A counter's name and how to find it.
type Counter = (&'static str, fn(&Usage) -> u64);

/// The counters by their names, in the order of every output.
const COUNTERS: [Counter; 6] = [
    ("payload_bytes", |usage| usage.payload_bytes),
    ("sent_bytes", |usage| usage.sent_bytes),
    ("wire_bytes", |usage| usage.wire_bytes),
    ("retried_bytes", |usage| usage.retried_bytes),
    ("requests", |usage| usage.requests),
    ("avoided_bytes", |usage| usage.avoided_bytes),
];

pub(super) fn run(context: &Context<'_>, args: &ReportArgs) -> Result<(), Failure> {
    let format = match (context.output.is_json(), args.format) {
        (true, None) => ReportFormat::Json,
        (true, Some(ReportFormat::Table | ReportFormat::Csv)) => {
            return Err(Failure::usage("--json prints JSON: leave --format out, or write --format json"));
        }
        (false, None) => ReportFormat::Table,
        (_, Some(format)) => format,
    };
    let file = rates_file(context, args);
    let card = file.as_deref().map(card::read).transpose()?;
    let month = args.month.unwrap_or_else(|| Month::of_unix(context.now().seconds));
    let repository = context.repository()?;
    let runtime = context.surroundings().runtime;
    let ledgers = read_ledgers(repository.origin(), repository.config().id, month, &runtime)?;
    let mut report = Report::new(args.by.clone(), card.as_ref(), args.provider.as_deref());
    for (node, days) in &ledgers.nodes {
        let node = node.to_hex();
        for (day, table) in days {
            for (key, usage) in table {
                report.add(*day, &node, key, usage).map_err(|error| explain(&error.into(), file.as_deref()))?;
            }
        }
    }
    let summary = report.finish().map_err(|error| explain(&error, file.as_deref()))?;
    match format {
        ReportFormat::Table => table(context, month, &summary),
        ReportFormat::Csv => csv(context, &summary),
        ReportFormat::Json => {
            let mut result = document(month, &summary);
            result["nodes"] = json!(ledgers.nodes.len());
            if let (Some(card), Some(file)) = (&card, &file) {
                result["rates"] = describe_card(card, file);
            }
            result["event"] = json!("result");
            context.output.raw(format!("{result}\n").as_bytes())
        }
    }?;
    context.output.flush()
}

/// The card to price with: the flag, else the setting; `none` for none.
fn rates_file(context: &Context<'_>, args: &ReportArgs) -> Option<PathBuf> {
    let file = args.rates.clone().unwrap_or_else(|| context.settings.values.rates.clone());
    (!file.as_os_str().is_empty() && file != Path::new("none")).then_some(file)
}

fn explain(error: &ReportError, file: Option<&Path>) -> Failure {
    let class = match error {
        ReportError::NoPrice { .. } | ReportError::Money(_) => ErrorClass::Usage,
        _ => ErrorClass::Corrupt,
    };
    let place = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
    let failure = Failure::new(class, format_args!("{place}{error}"));
    match error {
        ReportError::NoPrice { way, day, more } => {
            failure.with_fields(json!({ "way": way, "day": day.to_string(), "more": more }))
        }
        _ => failure,
    }
}

fn table(context: &Context<'_>, month: Month, summary: &Summary) -> Result<(), Failure> {
    context.output.line(&format!("egress of {month} (UTC), GB = 10^9 bytes"))?;
    let rows = || summary.rows.iter().chain([&summary.total]);
    let mut table = TextTable::new();
    for (index, column) in summary.by.iter().enumerate() {
        let cell = |row: &Row| match row.group.get(index) {
            Some(value) if value.is_empty() => "-".to_owned(),
            Some(value) => text::name(value.as_bytes()),
            None if index == 0 => "total".to_owned(),
            None => String::new(),
        };
        table.words(column.name(), rows().map(cell));
    }
    if summary.by.is_empty() {
        table.words("", rows().map(|_| "total".to_owned()));
    }
    for (name, count) in COUNTERS {
        match name.strip_suffix("_bytes") {
            Some(name) => table.decimals(&format!("{name} GB"), 3, rows().map(|row| gigabytes(count(&row.usage)))),
            None => table.numbers(name, rows().map(|row| count(&row.usage).to_string())),
        }
    }
    if let Some(total) = &summary.total.cost {
        let currency = total.sent.currency;
        let costs = || rows().filter_map(|row| row.cost.as_ref());
        table.decimals(&format!("cost {currency}"), 2, costs().map(|cost| cost.sent.amount.to_string()));
        table.decimals(&format!("avoided {currency}"), 2, costs().map(|cost| cost.avoided.amount.to_string()));
        table.words("price", costs().map(|cost| prices(cost).join(", ")));
    }
    for line in table.lines() {
        context.output.line(&line)?;
    }
    Ok(())
}

fn csv(context: &Context<'_>, summary: &Summary) -> Result<(), Failure> {
    let mut header: Vec<String> = summary.by.iter().map(ToString::to_string).collect();
    header.extend(COUNTERS.map(|(name, _)| name.to_owned()));
    if summary.total.cost.is_some() {
        header.extend(["cost", "avoided_cost", "currency"].map(str::to_owned));
    }
    context.output.line(&csv_line(&header))?;
    for row in &summary.rows {
        let mut cells = row.group.clone();
        cells.extend(COUNTERS.map(|(_, count)| count(&row.usage).to_string()));
        if let Some(cost) = &row.cost {
            cells.extend([cost.sent.amount.to_string(), cost.avoided.amount.to_string()]);
            cells.push(cost.sent.currency.to_string());
        }
        context.output.line(&csv_line(&cells))?;
    }
    Ok(())
}

/// One line; what needs quotes has them (RFC 4180).
fn csv_line(cells: &[String]) -> String {
    let quoted = cells.iter().map(|cell| {
        if cell.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.clone() }
    });
    quoted.collect::<Vec<_>>().join(",")
}

fn document(month: Month, summary: &Summary) -> Value {
    let rows = summary.rows.iter().map(|row| {
        let mut object = figures(row);
        for (column, value) in summary.by.iter().zip(&row.group) {
            object[column.name()] = json!(value);
        }
        if let Some(cost) = &row.cost {
            object["prices"] = json!(prices(cost));
        }
        object
    });
    json!({
        "month": month.to_string(),
        "by": summary.by.iter().map(|column| column.name()).collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
        "totals": figures(&summary.total),
    })
}

/// Money is text: a JSON number would go through a float.
fn figures(row: &Row) -> Value {
    let mut object = json!({});
    for (name, count) in COUNTERS {
        object[name] = json!(count(&row.usage));
    }
    if let Some(cost) = &row.cost {
        object["cost"] = json!(cost.sent.amount.to_string());
        object["avoided_cost"] = json!(cost.avoided.amount.to_string());
        object["currency"] = json!(cost.sent.currency.to_string());
    }
    object
}

fn prices(cost: &Cost) -> Vec<String> {
    cost.prices.iter().map(ToString::to_string).collect()
}

fn describe_card(card: &RateCard, file: &Path) -> Value {
    let mut object = json!({ "version": card.version(), "currency": card.currency().to_string() });
    text::add_raw(&mut object, "file", file.as_os_str().as_encoded_bytes());
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_needs_it() {
        let cells = ["plain", "with,comma", "with \"quotes\"", "two\nlines", ""].map(str::to_owned);
        assert_eq!(csv_line(&cells), "plain,\"with,comma\",\"with \"\"quotes\"\"\",\"two\nlines\",");
    }
}
