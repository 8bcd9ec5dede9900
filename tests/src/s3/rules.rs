//! Faults: which requests they hit and what they do.

use std::ops::Range;
use std::time::Duration;

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Answer this status without doing anything.
    Status(u16),
    /// Do what was asked, then answer this status.
    StatusAfterCommit(u16),
    /// Close the connection after so many bytes of the answer's body.
    CutAfter(u64),
    /// Say nothing more after so many bytes of the answer's body, with the connection open.
    SilenceAfter(u64),
    /// Wait before anything else.
    Delay(Duration),
    /// Do as if the request had no condition.
    IgnoreConditions,
    /// Answer the whole object whatever range was asked for.
    IgnoreRange,
    /// Answer this body in place of the object's.
    Body(Vec<u8>),
}

/// An [`Action`] and the requests it is for.
#[derive(Debug, Clone)]
pub struct Rule {
    method: Option<&'static str>,
    key_part: String,
    numbers: Range<u64>,
    action: Action,
    seen: u64,
}

impl Rule {
    /// For every request whose key contains `key_part`.
    pub fn new(key_part: &str, action: Action) -> Self {
        Self { method: None, key_part: key_part.to_owned(), numbers: 0..u64::MAX, action, seen: 0 }
    }

    /// Only for one method.
    #[must_use]
    pub fn method(mut self, method: &'static str) -> Self {
        self.method = Some(method);
        self
    }

    /// Only for these of the requests that fit, counted from 0.
    #[must_use]
    pub fn numbers(mut self, numbers: Range<u64>) -> Self {
        self.numbers = numbers;
        self
    }
}

/// All rules in force.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    pub(super) fn add(&mut self, rule: Rule) {
        self.0.push(rule);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts the request and says what is to happen to it.
    pub(super) fn plan(&mut self, method: &str, key: &str) -> Plan {
        let mut plan = Plan::default();
        for rule in &mut self.0 {
            if rule.method.is_some_and(|wanted| wanted != method) || !key.contains(&rule.key_part) {
                continue;
            }
            let number = rule.seen;
            rule.seen += 1;
            if rule.numbers.contains(&number) {
                plan.add(&rule.action);
            }
        }
        plan
    }
}

/// Everything that is to happen to one request.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) status: Option<u16>,
    pub(super) status_after_commit: Option<u16>,
    pub(super) cut_after: Option<u64>,
    pub(super) silence_after: Option<u64>,
    pub(super) delay: Duration,
    pub(super) ignore_conditions: bool,
    pub(super) ignore_range: bool,
    pub(super) body: Option<Vec<u8>>,
}

impl Plan {
    fn add(&mut self, action: &Action) {
        match action {
            Action::Status(status) => self.status = Some(*status),
            Action::StatusAfterCommit(status) => self.status_after_commit = Some(*status),
            Action::CutAfter(bytes) => self.cut_after = Some(*bytes),
            Action::SilenceAfter(bytes) => self.silence_after = Some(*bytes),
            Action::Delay(delay) => self.delay += *delay,
            Action::IgnoreConditions => self.ignore_conditions = true,
            Action::IgnoreRange => self.ignore_range = true,
            Action::Body(body) => self.body = Some(body.clone()),
        }
    }
}
