//! `forebay egress rates check`, and reading rate cards.
//!
//! ```toml
//! version = "2026-11"          # what the card calls itself; reports show it
//!
//! [[route]]
//! from = "origin:s3"           # a place, its beginning as site:*, or *
//! to = "site:*"
//! price = "0.09 USD/GB"        # or USD/GiB
//! provider = "aws"             # may be left out, like all below
//! tier = "10g"
//! first_day = "2026-01-01"
//! last_day = "2026-12-31"      # the last day it holds
//! ```

use std::fmt;
use std::path::Path;

use figment::providers::{Format, Toml};
use forebay_cas::{Classify, ErrorClass};
use forebay_policy::{Pattern, Rate, RateCard};
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::text;

const FIELDS: &str = "from, to, price, provider, tier, first_day or last_day";
/// What the TOML reader makes of a date without quotes: a table with this one key.
const BARE_DATE: &str = "$__toml_private_datetime";

pub(super) fn check(context: &Context<'_>, file: &Path) -> Result<(), Failure> {
    let card = read(file)?;
    let (routes, currency) = (card.rates().len(), card.currency());
    let (shown, version) = (file.display(), card.version());
    let count = text::count(routes as u64, "route");
    context.output.line(&format!("{shown}: version {version}, {count} in {currency}, nothing contradicts"))?;
    let mut result = json!({ "version": version, "routes": routes, "currency": currency.to_string() });
    text::add_raw(&mut result, "file", file.as_os_str().as_encoded_bytes());
    context.output.result(result)?;
    context.output.flush()
}

/// Reads and checks a rate card.
pub(crate) fn read(file: &Path) -> Result<RateCard, Failure> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|source| {
        let class = if source.kind() == std::io::ErrorKind::InvalidData { ErrorClass::Usage } else { source.class() };
        Failure::new(class, format_args!("the rate card {shown} cannot be read: {source}"))
    })?;
    parse(&text).map_err(|problem| {
        let (message, mut fields) = (format!("the rate card {shown} is wrong: {problem}"), json!({}));
        text::add_raw(&mut fields, "file", file.as_os_str().as_encoded_bytes());
        fields["entry"] = json!(problem.entry);
        fields["field"] = json!(problem.field);
        Failure::usage(message).with_fields(fields)
    })
}

/// What is wrong with a card, and where.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// Number of the route, from 1.
    entry: Option<usize>,
    field: Option<String>,
    what: String,
}

impl Problem {
    fn new(what: impl fmt::Display) -> Self {
        Self { entry: None, field: None, what: what.to_string() }
    }

    fn at(self, field: &str) -> Self {
        Self { field: Some(field.to_owned()), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(entry) = self.entry {
            write!(f, "route {entry}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.what)
    }
}

fn parse(text: &str) -> Result<RateCard, Problem> {
    let parsed: Map<String, Value> = Toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
        let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        Problem::new(format_args!("{line}{}", error.message()))
    })?;
    let mut version = None;
    let mut rates = Vec::new();
    for (key, value) in &parsed {
        match (key.as_str(), value) {
            ("version", Value::String(text)) => version = Some(text.clone()),
            ("version", Value::Number(number)) => version = Some(number.to_string()),
            ("version", other) => return Err(Problem::new(format_args!("write text in quotes, not {other}")).at(key)),
            ("route", Value::Array(entries)) => {
                for (number, entry) in (1..).zip(entries) {
                    rates.push(rate(entry).map_err(|problem| Problem { entry: Some(number), ..problem })?);
                }
            }
            ("route", _) => return Err(Problem::new("write each route under a line [[route]]").at(key)),
            _ => return Err(Problem::new("a rate card has version and [[route]], nothing else").at(key)),
        }
    }
    let missing = || Problem::new("is missing: give the card a name, for example version = \"2026-11\"").at("version");
    RateCard::new(version.ok_or_else(missing)?, rates).map_err(Problem::new)
}

fn rate(entry: &Value) -> Result<Rate, Problem> {
    let Value::Object(fields) = entry else {
        return Err(Problem::new("write each route under a line [[route]]"));
    };
    let known = ["from", "to", "price", "provider", "tier", "first_day", "last_day"];
    if let Some(unknown) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(Problem::new(format_args!("is no field of a route: write {FIELDS}")).at(unknown));
    }
    let all = || Ok(Pattern::ANY);
    Ok(Rate {
        from: field(fields, "from")?.ok_or_else(|| missing("from", "origin:s3, site:* or *"))?,
        to: field(fields, "to")?.ok_or_else(|| missing("to", "gateway, site:* or *"))?,
        price: field(fields, "price")?.ok_or_else(|| missing("price", "0.09 USD/GB"))?,
        provider: field(fields, "provider")?.map_or_else(all, Ok)?,
        tier: field(fields, "tier")?.map_or_else(all, Ok)?,
        first_day: field(fields, "first_day")?,
        last_day: field(fields, "last_day")?,
    })
}

fn missing(field: &str, example: &str) -> Problem {
    Problem::new(format_args!("is missing: write for example {field} = \"{example}\"")).at(field)
}

/// Parses a field of a route; `None` if it is not there.
fn field<T>(fields: &Map<String, Value>, name: &str) -> Result<Option<T>, Problem>
where
    T: std::str::FromStr<Err: fmt::Display>,
{
    let text = match fields.get(name) {
        None => return Ok(None),
        Some(Value::String(text)) => text,
        Some(Value::Object(date)) if let Some(Value::String(text)) = date.get(BARE_DATE) => text,
        Some(other) => return Err(Problem::new(format_args!("write text in quotes, not {other}")).at(name)),
    };
    text.parse().map(Some).map_err(|error: T::Err| Problem::new(error).at(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> (Option<usize>, Option<String>, String) {
        let problem = parse(text).expect_err("the card is wrong");
        (problem.entry, problem.field.clone(), problem.to_string())
    }

    const GOOD: &str = "[[route]]\nfrom = \"eu\"\nto = \"internet\"\nprice = \"0.09 USD/GB\"\n";

    #[test]
    fn a_card_with_everything() {
        let text = format!(
            "version = 7\n{GOOD}[[route]]\nfrom = \"site:*\"\nto = \"*\"\nprice = \"0.02 USD/GiB\"\nprovider = \"aws\"\n\
             tier = \"10g\"\nfirst_day = 2026-01-01\nlast_day = \"2026-12-31\"\n"
        );
        let card = parse(&text).unwrap();
        assert_eq!((card.version(), card.rates().len()), ("7", 2));
        assert_eq!(card.rates()[1].to_string(), "site:* → * on tier 10g by aws from 2026-01-01 until 2026-12-31");
    }

    #[test]
    fn what_is_wrong_is_named_with_entry_and_field() {
        let cases = [
            ("price = \"0.09 USD\"", "price", "has no unit"),
            ("price = \"0.09 USD/TB\"", "price", "no unit of a price"),
            ("price = 0.09", "price", "text in quotes, not 0.09"),
            ("price = \"-1 USD/GB\"", "price", "not a number"),
            ("", "price", "is missing"),
            ("price = \"1 USD/GB\"\nprise = \"1\"", "prise", "no field of a route"),
            ("price = \"1 USD/GB\"\nfirst_day = \"2026-02-30\"", "first_day", "no day"),
            ("price = \"1 USD/GB\"\nlast_day = 2026-02-01T00:00:00Z", "last_day", "no day"),
            ("price = \"1 USD/GB\"\ntier = \"\"", "tier", "fits nothing"),
        ];
        for (line, field, what) in cases {
            let text = format!("version = \"1\"\n{GOOD}[[route]]\nfrom = \"a\"\nto = \"b\"\n{line}\n");
            let (entry, found, message) = problem(&text);
            assert_eq!((entry, found.as_deref()), (Some(2), Some(field)), "{message}");
            assert!(message.starts_with("route 2: ") && message.contains(what), "{message}");
        }
        for (text, what) in [
            (GOOD.to_owned(), "version"),
            ("version = \"1\"".to_owned(), "has no routes"),
            (format!("version = \"1\"\ncurrency = \"USD\"\n{GOOD}"), "currency"),
            (format!("version = \"1\"\n{GOOD}{GOOD}"), "route 1 (eu → internet) and route 2 (eu → internet)"),
            ("version = \"1\"\nroute = 5".to_owned(), "[[route]]"),
            ("version = \"1\"\nroute = [5]".to_owned(), "route 1: write each route"),
            ("version = \"1\"\n[[route]\n".to_owned(), "line 2: "),
            (format!("version = \"1\"\n{GOOD}").replace("0.09 USD", "0.09 USD\" \""), "line 5"),
        ] {
            let (_, _, message) = problem(&text);
            assert!(message.contains(what), "{message}");
        }
    }
}
