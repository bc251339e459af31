//! Details of errors, typed: what `grpc-status-details-bin` carries.

use super::any::{AnyError, decode, encode};
use super::rpc::bad_request::FieldViolation;
use super::rpc::{
    self, BadRequest, DebugInfo, ErrorInfo, Help, LocalizedMessage, PreconditionFailure, QuotaFailure,
    RequestInfo, ResourceInfo, RetryInfo,
};
use crate::wkt::{self, Any};
use std::time::Duration;
use trunkline_call::Status;
use trunkline_message::Message;

/// Declares [`ErrorDetails`]: a field per type of `google.rpc`, and how each gets in and out.
macro_rules! error_details {
    ($($(#[$doc:meta])* $field:ident: $of:ident),* $(,)?) => {
        /// What comes with an error beside its code and message, in the types of `google.rpc`.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct ErrorDetails {
            $($(#[$doc])* pub $field: Option<$of>,)*
            /// Details of other types.
            pub others: Vec<Any>,
        }

        $(
            impl From<$of> for ErrorDetails {
                fn from(detail: $of) -> Self {
                    Self { $field: Some(detail), ..Self::default() }
                }
            }
        )*

        impl ErrorDetails {
            fn packed(&self) -> Vec<Any> {
                let known = [$(self.$field.as_ref().map(pack),)*];
                known.into_iter().flatten().flatten().chain(self.others.iter().cloned()).collect()
            }

            /// Takes a detail in. Of two of one type, the first counts.
            fn take(&mut self, any: Any) -> Result<(), AnyError> {
                $(
                    if any.is::<$of>() && self.$field.is_none() {
                        self.$field = Some(any.unpack(rpc::FILE_DESCRIPTOR_SET)?);
                        return Ok(());
                    }
                )*
                self.others.push(any);
                Ok(())
            }
        }
    };
}

error_details! {
    /// Why, for programs.
    error_info: ErrorInfo,
    /// When to try again.
    retry_info: RetryInfo,
    /// Where it went wrong.
    debug_info: DebugInfo,
    /// Which quota was exceeded.
    quota_failure: QuotaFailure,
    /// What has to be so before the call can be made.
    precondition_failure: PreconditionFailure,
    /// What is wrong with the request.
    bad_request: BadRequest,
    /// Which request it was.
    request_info: RequestInfo,
    /// What the call was about.
    resource_info: ResourceInfo,
    /// Where to read more.
    help: Help,
    /// Why, for people.
    localized_message: LocalizedMessage,
}

impl ErrorDetails {
    /// No details yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with a constant that says why (`STOCK_EXHAUSTED`), and whose constant that is.
    pub fn with_reason(mut self, reason: &str, domain: &str) -> Self {
        let info = self.error_info.get_or_insert_default();
        (info.reason, info.domain) = (reason.to_owned(), domain.to_owned());
        self
    }

    /// The same with how long to wait before another try; ten thousand years at most.
    pub fn with_retry_delay(mut self, delay: Duration) -> Self {
        let longest = wkt::Duration { seconds: super::time::DURATION_SECONDS_MAX, nanos: 0 };
        let retry_delay = Some(delay.try_into().unwrap_or(longest));
        self.retry_info = Some(RetryInfo { retry_delay });
        self
    }

    /// The same with one more field of the request that is wrong: its path, and what is wrong with it.
    pub fn with_bad_field(mut self, field: &str, description: &str) -> Self {
        let violation = FieldViolation {
            field: field.to_owned(),
            description: description.to_owned(),
            ..FieldViolation::default()
        };
        self.bad_request.get_or_insert_default().field_violations.push(violation);
        self
    }

    /// How long to wait before another try, if it is said.
    pub fn retry_delay(&self) -> Option<Duration> {
        self.retry_info.as_ref()?.retry_delay?.try_into().ok()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Typed details of a [`Status`].
///
/// ```
/// use trunkline::rpc::ErrorDetails;
/// use trunkline::{Status, StatusDetails};
///
/// let details = ErrorDetails::new().with_bad_field("name", "must not be empty");
/// let status = Status::invalid_argument("whom shall I greet?").with_error_details(&details);
/// // It travels as gRPC's `grpc-status-details-bin`; a caller reads it:
/// assert_eq!(status.error_details()?, details);
/// # Ok::<(), trunkline::wkt::AnyError>(())
/// ```
pub trait StatusDetails: Sized {
    /// The same status with these details instead of those it has. Metadata has space for about 32 KiB; details that
    /// need more are left out when the status is sent, and so is a detail of more than 2 GiB here.
    fn with_error_details(self, details: &ErrorDetails) -> Self;

    /// Its details; none if it carries none.
    ///
    /// # Errors
    /// [`AnyError::Message`] if what it carries is not a `google.rpc.Status`, or one of its details is not what it says
    /// it is. [`Status::details`] has the bytes.
    fn error_details(&self) -> Result<ErrorDetails, AnyError>;
}

impl StatusDetails for Status {
    fn with_error_details(self, details: &ErrorDetails) -> Self {
        let status = rpc::Status {
            code: self.code().number().into(),
            message: self.message().to_owned(),
            details: details.packed(),
        };
        let bytes = if details.is_empty() { None } else { encode(&status, rpc::FILE_DESCRIPTOR_SET).ok() };
        self.with_details(bytes.unwrap_or_default())
    }

    fn error_details(&self) -> Result<ErrorDetails, AnyError> {
        let mut details = ErrorDetails::new();
        if !self.details().is_empty() {
            let status: rpc::Status = decode(self.details(), rpc::FILE_DESCRIPTOR_SET)?;
            status.details.into_iter().try_for_each(|any| details.take(any))?;
        }
        Ok(details)
    }
}

fn pack<M: Message>(detail: &M) -> Option<Any> {
    Any::pack(detail, rpc::FILE_DESCRIPTOR_SET).ok()
}

#[cfg(test)]
mod tests {
    //! Shows that details survive, that bytes of others are read, and what is refused.
    use super::*;
    use trunkline_call::Metadata;

    fn some() -> ErrorDetails {
        let details = ErrorDetails::new()
            .with_reason("STOCK_EXHAUSTED", "shop.v1")
            .with_retry_delay(Duration::from_millis(1500))
            .with_bad_field("items[0].amount", "more than there are")
            .with_bad_field("name", "must not be empty");
        ErrorDetails { help: Some(Help::default()), ..details }
    }

    #[test]
    fn details_come_out_as_they_went_in() {
        let other = Any { type_url: "type.example/test.Other".to_owned(), value: vec![1] };
        let details = ErrorDetails { others: vec![other], ..some() };
        let status = Status::resource_exhausted("none left").with_error_details(&details);
        let mut trailers = Metadata::new();
        status.put_into(&mut trailers).unwrap();
        let status = Status::take_from(&mut trailers, status.code());
        assert_eq!(status.error_details(), Ok(details));
        assert_eq!(status.error_details().unwrap().retry_delay(), Some(Duration::from_millis(1500)));
        let whole: rpc::Status = decode(status.details(), rpc::FILE_DESCRIPTOR_SET).unwrap();
        assert_eq!((whole.code, whole.message.as_str()), (8, "none left"), "as gRPC says it");
    }

    #[test]
    fn none_are_no_bytes() {
        let status =
            Status::not_found("x").with_error_details(&some()).with_error_details(&ErrorDetails::new());
        assert_eq!(status.details(), [0; 0]);
        assert!(status.error_details().unwrap().is_empty());
    }

    #[test]
    fn bytes_that_are_no_status_are_refused() {
        for bytes in [&[0xff][..], &[0x1a, 9, 1]] {
            assert!(Status::internal("x").with_details(bytes).error_details().is_err(), "{bytes:?}");
        }
        let lies = ErrorDetails {
            others: vec![Any { type_url: "x/google.rpc.Help".to_owned(), value: vec![0x0a, 9] }],
            ..ErrorDetails::default()
        };
        let error = Status::internal("x").with_error_details(&lies).error_details().unwrap_err();
        assert!(error.to_string().contains("google.rpc.Help"), "{error}");
    }

    #[test]
    fn a_delay_is_as_long_as_there_is() {
        let details = ErrorDetails::new().with_retry_delay(Duration::MAX);
        assert_eq!(details.retry_delay().map(|delay| delay.as_secs()), Some(315_576_000_000));
    }
}
