//! Names that people and manifests give: refs, versions, entries of folders.

use std::fmt;
use std::str::FromStr;

use minicbor::decode::{self, Decoder};
use minicbor::encode::{self, Encoder, Write};

/// Longest ref name in bytes: it becomes part of messages and labels, never of a path.
const REF_NAME_MAX: usize = 255;
/// Longest entry name in bytes; Linux file systems stop at 255, some others at about 1,000.
pub(crate) const ENTRY_NAME_MAX: usize = 1024;
/// Fewest hex digits that name a snapshot.
const PREFIX_MIN: usize = 8;

/// Name of a ref: parts of `[a-z0-9._-]` joined by `/`, no part `.` or `..`, at most 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(String);

/// Why a text is not a ref name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a name: write parts of a-z 0-9 . _ - joined by /, at most 255 bytes")]
pub struct RefNameError {
    /// The text given.
    pub name: String,
}

impl RefName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RefName {
    type Err = RefNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let part_is_good = |part: &str| {
            !matches!(part, "" | "." | "..")
                && part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
        };
        if text.len() <= REF_NAME_MAX && text.split('/').all(part_is_good) {
            Ok(Self(text.to_owned()))
        } else {
            Err(RefNameError { name: text.to_owned() })
        }
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<C> minicbor::Encode<C> for RefName {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.str(&self.0)?.ok()
    }
}

impl<'b, C> minicbor::Decode<'b, C> for RefName {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        // Without the text: in a forged object it can be as long as the object.
        d.str()?.parse().map_err(|_not_a_name: RefNameError| decode::Error::message("not a ref name"))
    }
}

/// Which version of a ref is meant: `NAME`, `NAME@SEQ` or `NAME@ID-PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionSpec {
    /// The newest.
    Newest,
    /// The one with this number, or, if there is none and the digits are long enough, the one whose id starts so.
    Sequence(u64),
    /// The one whose id starts with these lower-case hex digits.
    IdPrefix(String),
}

/// Why a text is not `NAME[@VERSION]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionSpecError {
    /// The part before `@` is not a ref name.
    #[error(transparent)]
    Name(#[from] RefNameError),
    /// The part after `@` is neither a number nor at least eight hex digits.
    #[error("{version:?} is not a version: write a sequence number or at least 8 hex digits of a snapshot id")]
    Version {
        /// The text given.
        version: String,
    },
}

impl VersionSpec {
    /// Splits `NAME[@VERSION]`.
    ///
    /// # Errors
    /// [`VersionSpecError`] names the part that is wrong.
    pub fn parse(text: &str) -> Result<(RefName, Self), VersionSpecError> {
        let Some((name, version)) = text.split_once('@') else {
            return Ok((text.parse()?, Self::Newest));
        };
        let name = name.parse()?;
        if let Ok(sequence) = version.parse::<u64>()
            && version.bytes().all(|b| b.is_ascii_digit())
        {
            return Ok((name, Self::Sequence(sequence)));
        }
        let prefix = version.to_ascii_lowercase();
        let is_hex = prefix.bytes().all(|b| b.is_ascii_hexdigit());
        if is_hex && (PREFIX_MIN..=64).contains(&prefix.len()) {
            Ok((name, Self::IdPrefix(prefix)))
        } else {
            Err(VersionSpecError::Version { version: version.to_owned() })
        }
    }
}

/// Which checkpoint of a run is meant: `RUN@STEP`, `RUN@latest`, or `RUN` for the latest too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepSpec {
    /// The one saved last.
    Latest,
    /// The one of this step.
    Step(u64),
}

/// Why a text is not `RUN[@STEP]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepSpecError {
    /// The part before `@` is not a ref name.
    #[error(transparent)]
    Name(#[from] RefNameError),
    /// The part after `@` is neither a number nor `latest`.
    #[error("{step:?} is not a step: write a number, or `latest`")]
    Step {
        /// The text given.
        step: String,
    },
}

impl StepSpec {
    /// Splits `RUN[@STEP]`.
    ///
    /// # Errors
    /// [`StepSpecError`] names the part that is wrong.
    pub fn parse(text: &str) -> Result<(RefName, Self), StepSpecError> {
        let Some((name, step)) = text.split_once('@') else {
            return Ok((text.parse()?, Self::Latest));
        };
        let name = name.parse()?;
        if step == "latest" {
            return Ok((name, Self::Latest));
        }
        let wrong = || StepSpecError::Step { step: step.to_owned() };
        if !step.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        Ok((name, Self::Step(step.parse().map_err(|_too_large| wrong())?)))
    }
}

impl fmt::Display for StepSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Step(step) => step.fmt(f),
        }
    }
}

/// Why bytes cannot be the name of an entry of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryNameError {
    /// No bytes.
    #[error("it is empty")]
    Empty,
    /// Over 1,024 bytes.
    #[error("it is longer than 1024 bytes")]
    TooLong,
    /// `.` or `..`.
    #[error("it names a folder itself or its parent")]
    Dots,
    /// Has a `/`.
    #[error("it contains a slash")]
    Slash,
    /// Has a NUL byte.
    #[error("it contains a NUL byte")]
    Nul,
    /// Where `\` separates, it would name a drive, a share, the root or a parent.
    #[error("it leads out of the folder on systems where a backslash separates")]
    Backslash,
}

/// Checks that bytes name one entry of one folder, on every system: such a name can be joined to a folder and never
/// leads out of it. Names are raw bytes and are not normalised; a backslash inside is allowed as long as no system reads
/// it as a way up or out.
///
/// # Errors
/// [`EntryNameError`] says which rule the name breaks.
pub fn check_entry_name(name: &[u8]) -> Result<(), EntryNameError> {
    match name {
        b"" => return Err(EntryNameError::Empty),
        b"." | b".." => return Err(EntryNameError::Dots),
        _ => {}
    }
    if name.len() > ENTRY_NAME_MAX {
        return Err(EntryNameError::TooLong);
    }
    if name.contains(&b'/') {
        return Err(EntryNameError::Slash);
    }
    if name.contains(&0) {
        return Err(EntryNameError::Nul);
    }
    let drive = name.len() >= 3 && name[0].is_ascii_alphabetic() && name[1] == b':' && name[2] == b'\\';
    if drive || name[0] == b'\\' || (name.contains(&b'\\') && name.split(|b| *b == b'\\').any(|part| part == b"..")) {
        return Err(EntryNameError::Backslash);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ref_names() {
        for good in ["a", "data/v1.2_x-y", "0", "a/b/c", "..."] {
            assert_eq!(good.parse::<RefName>().unwrap().as_str(), good);
        }
        for bad in ["", "/", "a/", "/a", "a//b", ".", "a/..", "A", "ä", "a b", "a@1", "a:b", &"x".repeat(256)] {
            assert!(bad.parse::<RefName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn versions() {
        let spec = |text: &str| VersionSpec::parse(text).map(|(_, version)| version);
        assert_eq!(spec("a").unwrap(), VersionSpec::Newest);
        assert_eq!(spec("a@12").unwrap(), VersionSpec::Sequence(12));
        assert_eq!(spec("a@0123ABCD").unwrap(), VersionSpec::IdPrefix("0123abcd".to_owned()));
        for bad in ["a@", "a@+1", "a@-1", "a@abc", "a@0123abcz", "A@1", "@1", "a@1@2"] {
            assert!(spec(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn steps() {
        let spec = |text: &str| StepSpec::parse(text).map(|(_, step)| step);
        assert_eq!(spec("runs/a"), Ok(StepSpec::Latest));
        assert_eq!(spec("runs/a@latest"), Ok(StepSpec::Latest));
        assert_eq!(spec("a@0"), Ok(StepSpec::Step(0)));
        assert_eq!(spec("a@18446744073709551615"), Ok(StepSpec::Step(u64::MAX)));
        for bad in ["a@", "a@+1", "a@-1", "a@newest", "a@LATEST", "A@1", "@1", "a@1@2", "a@18446744073709551616"] {
            assert!(spec(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn entry_names_that_lead_out_are_refused() {
        let long = vec![b'x'; 1025];
        for bad in [
            b"".as_slice(),
            b".",
            b"..",
            b"a/b",
            b"/tmp/out.txt",
            b"a\0b",
            b"..\\out.txt",
            b"a\\..\\b",
            b"C:\\out.txt",
            b"\\\\host\\share\\out.txt",
            b"\\x",
            &long,
        ] {
            assert!(check_entry_name(bad).is_err(), "{bad:?}");
        }
        for good in [b"back\\slash".as_slice(), b"...", b"-rf", b"two\nlines", b"caf\xe9.bin", b"C:", b"a:b", b" "] {
            assert!(check_entry_name(good).is_ok(), "{good:?}");
        }
    }
}
