//! The bounds that both sides of a connection keep to.

use thiserror::Error;

/// What one side is ready to receive. Each side says its own in its hello; both then keep to the smaller of
/// the two, value by value ([`Limits::agree`]).
///
/// All values are `u32`: no number from the wire above 4 Gi is ever looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest body of one message, in bytes.
    pub message_bytes_max: u32,
    /// Most ids in one want, have or missing.
    pub ids_max: u32,
    /// Most frames in one run.
    pub run_frames_max: u32,
    /// Longest run, in bytes of frames as stored.
    pub run_bytes_max: u32,
    /// Most runs on their way at a time on one connection; each has a stream of its own.
    pub runs_in_flight_max: u32,
}

impl Limits {
    /// The least values a peer may name. Below them no useful message fits: a hello, a want of one id, a
    /// run of one frame of 1 MiB.
    pub const FLOOR: Self =
        Self { message_bytes_max: 256, ids_max: 1, run_frames_max: 1, run_bytes_max: 1 << 20, runs_in_flight_max: 1 };

    /// The smaller of both sides' values, each taken by itself.
    ///
    /// # Errors
    /// [`LimitsError`] if either side names a value below [`Limits::FLOOR`].
    pub fn agree(&self, peer: &Self) -> Result<Self, LimitsError> {
        self.check()?;
        peer.check()?;
        Ok(Self {
            message_bytes_max: self.message_bytes_max.min(peer.message_bytes_max),
            ids_max: self.ids_max.min(peer.ids_max),
            run_frames_max: self.run_frames_max.min(peer.run_frames_max),
            run_bytes_max: self.run_bytes_max.min(peer.run_bytes_max),
            runs_in_flight_max: self.runs_in_flight_max.min(peer.runs_in_flight_max),
        })
    }

    /// Whether every value is at least that of [`Limits::FLOOR`].
    ///
    /// # Errors
    /// [`LimitsError`] names the first value that is not.
    pub fn check(&self) -> Result<(), LimitsError> {
        let floor = Self::FLOOR.fields();
        match self.fields().into_iter().zip(floor).find(|((_, value), (_, least))| value < least) {
            Some(((field, value), (_, least))) => Err(LimitsError { field, value, least }),
            None => Ok(()),
        }
    }

    /// The values in the order of the wire, each with its name.
    pub(crate) const fn fields(&self) -> [(&'static str, u32); 5] {
        [
            ("message_bytes_max", self.message_bytes_max),
            ("ids_max", self.ids_max),
            ("run_frames_max", self.run_frames_max),
            ("run_bytes_max", self.run_bytes_max),
            ("runs_in_flight_max", self.runs_in_flight_max),
        ]
    }

    /// The reverse of [`Limits::fields`].
    pub(crate) const fn from_fields(values: [u32; 5]) -> Self {
        let [message_bytes_max, ids_max, run_frames_max, run_bytes_max, runs_in_flight_max] = values;
        Self { message_bytes_max, ids_max, run_frames_max, run_bytes_max, runs_in_flight_max }
    }
}

impl Default for Limits {
    /// Requests stay within 64 KiB, the bound proposed against peers that make a server buffer; 1,024 ids
    /// (32 KiB) fit twice. Runs aim at 1 MiB and end with a whole frame, so that with chunks of up to 2 MiB
    /// none is longer than 4 MiB. 64 runs in flight filled a path of 100 ms at 1 Gbit/s.
    fn default() -> Self {
        Self {
            message_bytes_max: 64 << 10,
            ids_max: 1024,
            run_frames_max: 4096,
            run_bytes_max: 4 << 20,
            runs_in_flight_max: 64,
        }
    }
}

/// A limit below the least useful value. The peer that names it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the limit {field} is {value}, and must be at least {least}")]
pub struct LimitsError {
    /// Name of the limit.
    pub field: &'static str,
    /// The value that was named.
    pub value: u32,
    /// The least value that is accepted.
    pub least: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_the_same_smaller_values() {
        let ours = Limits { ids_max: 10, ..Limits::default() };
        let theirs = Limits { runs_in_flight_max: 2, ..Limits::default() };
        let agreed = ours.agree(&theirs).unwrap();
        assert_eq!(agreed, Limits { ids_max: 10, runs_in_flight_max: 2, ..Limits::default() });
        assert_eq!(theirs.agree(&ours), Ok(agreed));
    }

    #[test]
    fn a_useless_limit_is_named() {
        let theirs = Limits { ids_max: 0, ..Limits::default() };
        let error = LimitsError { field: "ids_max", value: 0, least: 1 };
        assert_eq!(Limits::default().agree(&theirs), Err(error));
    }

    #[test]
    fn fields_round_trip() {
        let limits = Limits::default();
        assert_eq!(Limits::from_fields(limits.fields().map(|(_, value)| value)), limits);
    }
}
