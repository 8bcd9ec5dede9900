//! What holds: flag, then environment, then configuration file, then default.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Error, Figment, Metadata, Profile, Provider};
use serde::{Deserialize, Serialize};

use crate::args::{GlobalArgs, size};
use crate::failure::Failure;
use crate::text;

/// Settings that can stand in the environment, as `FOREBAY_` and this word.
const ENVIRONMENT: [(&str, &str); 10] = [
    ("FOREBAY_REPO", "repo"),
    ("FOREBAY_TENANT", "tenant"),
    ("FOREBAY_JOB", "job"),
    ("FOREBAY_CACHE", "cache_dir"),
    ("FOREBAY_OFFLINE", "offline"),
    ("FOREBAY_MEMORY", "memory"),
    ("FOREBAY_NODES", "nodes"),
    ("FOREBAY_IDENTITY", "identity"),
    ("FOREBAY_THREADS", "threads"),
    ("FOREBAY_RATES", "rates"),
];
/// Nothing works with less memory than this.
const MEMORY_MIN_BYTES: u64 = 32 << 20;
/// Variables of the stores' own clients.
const STORE_PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Every setting with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Values {
    pub(crate) repo: String,
    /// Comma list.
    pub(crate) nodes: String,
    pub(crate) direct: bool,
    pub(crate) identity: PathBuf,
    pub(crate) tenant: String,
    pub(crate) job: String,
    pub(crate) cache_dir: PathBuf,
    pub(crate) offline: bool,
    /// As written: `512MiB`.
    pub(crate) memory: String,
    pub(crate) threads: usize,
    /// Rate card that reports are priced with; empty for none.
    pub(crate) rates: PathBuf,
}

/// Settings, where each comes from, and what the stores' clients find in the environment.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) values: Values,
    /// Name, value, source.
    pub(crate) origins: Vec<(String, String, String)>,
    /// [`Values::memory`] as a number.
    pub(crate) memory_bytes: u64,
    /// Variables of the stores' clients; never shown.
    pub(crate) store: Vec<(String, String)>,
}

/// Puts the layers together.
pub(crate) fn resolve(args: &GlobalArgs) -> Result<Settings, Failure> {
    let base = etcetera::choose_base_strategy().ok();
    let file = args.config.clone().or_else(|| variable("FOREBAY_CONFIG").map(PathBuf::from));
    if let Some(file) = &file
        && !file.is_file()
    {
        return Err(Failure::usage(format_args!("the configuration file {} does not exist", file.display())));
    }
    let file = file.or_else(|| Some(base.as_ref()?.config_dir().join("forebay/config.toml")));
    let mut figment = Figment::from(Serialized::defaults(defaults(
        base.as_ref().map(|base| (base.data_dir(), base.cache_dir(), base.config_dir())),
    )));
    if let Some(file) = file.filter(|file| file.is_file()) {
        figment = figment.merge(Toml::file_exact(file));
    }
    figment = figment.merge(Layer::environment()?).merge(Layer::flags(args)?);
    let values: Values = figment.extract().map_err(|error| Failure::usage(describe(&error)))?;
    if values.threads == 0 {
        return Err(Failure::usage("threads is 0: write at least 1"));
    }
    let memory_bytes = size(&values.memory)
        .map_err(|error| Failure::usage(format_args!("memory is {:?}, which is no size: {error}", values.memory)))?;
    if memory_bytes < MEMORY_MIN_BYTES {
        let at_least = text::bytes(MEMORY_MIN_BYTES);
        return Err(Failure::usage(format_args!("memory is {}: write at least {at_least}", values.memory)));
    }
    let origins = origins(&figment, &values);
    let store = store_variables();
    Ok(Settings { values, origins, memory_bytes, store })
}

fn defaults(dirs: Option<(PathBuf, PathBuf, PathBuf)>) -> Values {
    // Without a home folder there is no better place that can be made again.
    let here = || (PathBuf::from("."), std::env::temp_dir(), PathBuf::from("."));
    let (data, cache, config) = dirs.unwrap_or_else(here);
    Values {
        repo: data.join("forebay/repo").to_string_lossy().into_owned(),
        nodes: String::new(),
        direct: false,
        identity: config.join("forebay/identity.key"),
        tenant: "default".to_owned(),
        job: String::new(),
        cache_dir: cache.join("forebay"),
        offline: false,
        memory: "512MiB".to_owned(),
        threads: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
        rates: PathBuf::new(),
    }
}

/// One layer with the name people see as its source.
struct Layer {
    name: &'static str,
    values: Dict,
}

impl Layer {
    fn environment() -> Result<Self, Failure> {
        let mut values = Dict::new();
        for (name, key) in ENVIRONMENT {
            let Some(text) = variable(name) else { continue };
            let wrong = |what: &str| Failure::usage(format_args!("{name}={text:?} is wrong: write {what}"));
            let value = match key {
                "offline" => Value::from(parse_bool(&text).ok_or_else(|| wrong("true or false"))?),
                "threads" => Value::from(text.parse::<usize>().map_err(|_error| wrong("a number"))?),
                _ => Value::from(text),
            };
            values.insert(key.to_owned(), value);
        }
        Ok(Self { name: "environment", values })
    }

    fn flags(args: &GlobalArgs) -> Result<Self, Failure> {
        let mut values = Dict::new();
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                values.insert(key.to_owned(), value);
            }
        };
        set("repo", args.repo.clone().map(Value::from));
        set("nodes", (!args.node.is_empty()).then(|| Value::from(args.node.join(","))));
        set("direct", args.direct.then(|| Value::from(true)));
        set("identity", args.identity.as_deref().map(path_text).transpose()?.map(Value::from));
        set("tenant", args.tenant.clone().map(Value::from));
        set("job", args.job.clone().map(Value::from));
        set("cache_dir", args.cache_dir.as_deref().map(path_text).transpose()?.map(Value::from));
        set("offline", args.offline.then(|| Value::from(true)));
        set("memory", args.memory.clone().map(Value::from));
        set("threads", args.threads.map(Value::from));
        Ok(Self { name: "flag", values })
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

fn origins(figment: &Figment, values: &Values) -> Vec<(String, String, String)> {
    let shown = serde_json::to_value(values).unwrap_or_default();
    let fields = shown.as_object().into_iter().flatten();
    fields
        .map(|(key, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (key.clone(), value, source(figment, key))
        })
        .collect()
}

fn source(figment: &Figment, key: &str) -> String {
    let Some(metadata) = figment.find_metadata(key) else { return "default".to_owned() };
    match (&*metadata.name, metadata.source.as_ref().and_then(|source| source.file_path())) {
        (_, Some(file)) => file.display().to_string(),
        ("environment", None) => {
            let variable = ENVIRONMENT.iter().find(|(_, known)| *known == key).map_or("environment", |(name, _)| name);
            format!("environment ({variable})")
        }
        ("flag", None) => "flag".to_owned(),
        _ => "default".to_owned(),
    }
}

fn describe(error: &Error) -> String {
    let place = error.metadata.as_ref().and_then(|metadata| metadata.source.as_ref());
    match place {
        Some(place) => format!("the setting is wrong in {place}: {error}"),
        None => format!("a setting is wrong: {error}"),
    }
}

fn path_text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str();
    text.map(str::to_owned).ok_or_else(|| Failure::usage(format_args!("{} is not UTF-8", path.display())))
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "true" | "yes" => Some(true),
        "" | "0" | "false" | "no" => Some(false),
        _ => None,
    }
}

#[expect(clippy::disallowed_methods, reason = "the command line reads the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn store_variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| STORE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .collect()
}
