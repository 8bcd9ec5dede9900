//! Nodes that serve while a test runs.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::outcome::Outcome;
use crate::running::{Running, high_water_mark, wait_until};
use crate::sandbox::{Command, Sandbox, Stdout};

/// A node must be ready in this time; a bar of its own is tested where it is meant.
const READY: Duration = Duration::from_secs(20);

/// A command of a client that has no repository, only `nodes`; `name` keeps its key and cache apart from others'.
pub fn client(sandbox: &Sandbox, name: &str, nodes: &str, args: &[&str]) -> Command {
    let key = sandbox.path(format!("{name}.key"));
    let command = sandbox.command(args.iter().copied()).json().env("FOREBAY_REPO", "/nowhere/at/all");
    command.env("FOREBAY_NODES", nodes).env("FOREBAY_IDENTITY", key).env("FOREBAY_CACHE", sandbox.path(name))
}

/// One serving node. Dropped, it is killed.
#[derive(Debug)]
pub struct Serving {
    running: Running,
    ready: Value,
    /// From the start of the process to its ready line.
    pub took: Duration,
}

impl Serving {
    /// A gateway of the sandbox's repository; `name` keeps its key and cache apart from others'.
    pub fn gateway(sandbox: &Sandbox, name: &str, more: &[&str]) -> Self {
        let mut args = vec!["node", "--role", "gateway"];
        args.extend(more);
        Self::start(sandbox, name, &args)
    }

    /// An edge in front of `upstream`.
    pub fn edge(sandbox: &Sandbox, name: &str, upstream: &Self, more: &[&str]) -> Self {
        let upstream = upstream.addr();
        let mut args = vec!["node", "--site", name, "--upstream", &upstream];
        args.extend(more);
        Self::start(sandbox, name, &args)
    }

    fn start(sandbox: &Sandbox, name: &str, args: &[&str]) -> Self {
        let started = std::time::Instant::now();
        let log = sandbox.path(format!("{name}.jsonl"));
        fs::write(&log, "").expect("a temporary file can be written");
        let key = sandbox.path(format!("{name}.key"));
        let mut command = sandbox.command(args).json().limit_s(300).stdout(Stdout::File(log.clone()));
        if !args.contains(&"--listen") {
            command = command.arg("--listen").arg("127.0.0.1:0");
        }
        let running = command
            .arg("--http")
            .arg("127.0.0.1:0")
            .arg("--identity")
            .arg(key)
            .arg("--cache-dir")
            .arg(Self::cache_dir(sandbox, name))
            .start();
        let mut ready = None;
        wait_until("the node is ready", READY, || {
            let text = fs::read_to_string(&log).expect("the node's output can be read");
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            ready = lines.into_iter().find(|line| line["event"] == "ready");
            assert!(!text.contains("\"event\":\"error\""), "the node does not start: {text}");
            ready.is_some()
        });
        Self { running, ready: ready.expect("waited for"), took: started.elapsed() }
    }

    /// The cache folder of the node `name`.
    pub fn cache_dir(sandbox: &Sandbox, name: &str) -> PathBuf {
        sandbox.path(format!("{name}.cache"))
    }

    /// `NODE_ID@HOST:PORT`
    pub fn addr(&self) -> String {
        format!("{}@{}", self.id(), self.listen())
    }

    /// The node's id.
    pub fn id(&self) -> &str {
        self.ready["node_id"].as_str().expect("a ready line has a node id")
    }

    /// Its UDP address.
    pub fn listen(&self) -> &str {
        self.ready["listen"].as_str().expect("a ready line has an address")
    }

    /// The body of an HTTP answer.
    pub fn http(&self, path: &str) -> String {
        let place = self.ready["http"].as_str().expect("a ready line has an HTTP address");
        let mut stream = TcpStream::connect(place).expect("the node answers HTTP");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
            .expect("a request can be sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer comes");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer.split_once("\r\n\r\n").expect("an answer has a body").1.to_owned()
    }

    /// What it says about itself.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.http("/v1/status")).expect("the status is JSON")
    }

    /// The high-water mark of its resident memory.
    pub fn peak_rss_bytes(&self) -> u64 {
        high_water_mark(self.running.id())
    }

    /// Sends a signal.
    pub fn signal(&mut self, signal: Signal) {
        self.running.signal(signal);
    }

    /// Kills it and waits until it is gone.
    pub fn kill(mut self) {
        self.running.signal(Signal::KILL);
        self.running.wait();
    }

    /// Waits until it ends by itself.
    pub fn wait(self) -> Outcome {
        self.running.wait()
    }

    /// Asks it to stop, waits until it has, and checks that it says so.
    pub fn stop(mut self) {
        self.running.signal(Signal::INT);
        assert_eq!(self.running.wait().code(), 130, "a node that is asked to stop is interrupted");
    }
}
