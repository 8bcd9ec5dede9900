//! Whose budget it is.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Bytes a name of a tenant or job may have.
pub const NAME_BYTES_MAX: usize = 255;

/// A tenant (`acme`) or one of its jobs (`acme/train`). A name of a tenant has no slash; one of a job may.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// Who pays.
    pub tenant: String,
    /// Which of its jobs; `None` for all of them.
    pub job: Option<String>,
}

impl Scope {
    /// Whether budgets can be kept for these names.
    ///
    /// # Errors
    /// [`ScopeError`] says why not.
    pub fn check(tenant: &str, job: &str) -> Result<(), ScopeError> {
        let is_name = |name: &str| name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        if tenant.is_empty() || tenant.contains('/') || !is_name(tenant) || !is_name(job) {
            return Err(ScopeError { text: shortened(&format!("{tenant}/{job}")) });
        }
        Ok(())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tenant)?;
        self.job.as_ref().map_or(Ok(()), |job| write!(f, "/{job}"))
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let (tenant, job) = text.split_once('/').map_or((text, None), |(tenant, job)| (tenant, Some(job)));
        Self::check(tenant, job.unwrap_or_default())?;
        if job.is_some_and(str::is_empty) {
            return Err(ScopeError { text: shortened(text) });
        }
        Ok(Self { tenant: tenant.to_owned(), job: job.map(str::to_owned) })
    }
}

/// A text that names nobody.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} names no tenant or job: write TENANT or TENANT/JOB, each up to 255 bytes, no slash in a tenant")]
pub struct ScopeError {
    /// The text as given, shortened if it is long.
    pub text: String,
}

/// Enough of a text to recognise it.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_a_tenant_or_a_job_of_one() {
        for text in ["acme", "acme/train", "acme/nightly/3", "Ä b"] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        for text in ["", "/train", "acme/", "a\nb", "a/b\0", &"x".repeat(256)] {
            assert!(text.parse::<Scope>().is_err(), "{text:?}");
        }
        // A tenant with a slash would pass for a job of another tenant.
        assert!(Scope::check("acme/train", "").is_err());
    }
}
