//! What generated message types have in common.

use crate::block::Block;
use crate::builder::{BuildError, Builder, Built};
use crate::extent::{AlignedBuf, Extent};
use crate::view::View;

/// A generated message type: a plain struct that can be written to and read from the linear form.
///
/// Implemented by generated code. What an implementation looks like, for
/// `message Hello { string name = 1; Hello reply_to = 2; }` of proto3:
///
/// ```
/// use trunkline_message::{Block, Extent, FieldAt, Message, View};
///
/// #[derive(Clone, Debug, Default, PartialEq)]
/// struct Hello { name: String, reply_to: Option<Box<Hello>> }
///
/// #[derive(Clone, Copy)]
/// struct HelloView<'a>(View<'a>);
///
/// struct HelloBuilder<'b, E>(Block<'b, E>);
///
/// const NAME: FieldAt = FieldAt::new(8, 0);
/// const REPLY_TO: FieldAt = FieldAt::new(16, 1);
///
/// impl Message for Hello {
///     type View<'a> = HelloView<'a>;
///     type Builder<'b, E: Extent + 'b> = HelloBuilder<'b, E>;
///     const FULL_NAME: &'static str = "greeter.Hello";
///     const FINGERPRINT: u64 = 0x0123_4567_89ab_cdef;
///     const BLOCK_BYTES: u32 = 24;
///
///     fn write<E: Extent>(&self, mut block: Block<'_, E>) {
///         if !self.name.is_empty() {
///             block.set_str(NAME, &self.name);
///         }
///         if let Some(reply_to) = &self.reply_to {
///             reply_to.write(block.message(REPLY_TO, Hello::BLOCK_BYTES));
///         }
///     }
///
///     fn read(HelloView(view): HelloView<'_>) -> Self {
///         Self {
///             name: view.str(NAME).to_owned(),
///             reply_to: view.message(REPLY_TO).map(|inner| Box::new(Hello::read(inner.into()))),
///         }
///     }
/// }
///
/// impl<'a> HelloView<'a> {
///     fn name(self) -> &'a str { self.0.str(NAME) }
///     fn reply_to(self) -> Option<HelloView<'a>> { self.0.message(REPLY_TO).map(HelloView) }
/// }
/// impl<'a> From<View<'a>> for HelloView<'a> {
///     fn from(view: View<'a>) -> Self { Self(view) }
/// }
/// impl<'a> From<HelloView<'a>> for View<'a> {
///     fn from(view: HelloView<'a>) -> Self { view.0 }
/// }
///
/// impl<E: Extent> HelloBuilder<'_, E> {
///     fn set_name(&mut self, value: &str) { self.0.set_str(NAME, value) }
///     fn reply_to(&mut self) -> HelloBuilder<'_, E> { HelloBuilder(self.0.message(REPLY_TO, Hello::BLOCK_BYTES)) }
/// }
/// impl<'b, E> From<Block<'b, E>> for HelloBuilder<'b, E> {
///     fn from(block: Block<'b, E>) -> Self { Self(block) }
/// }
///
/// let built = Hello::build(trunkline_message::AlignedBuf::new(), |hello| {
///     hello.set_name("Ada");
///     hello.reply_to().set_name("Grace");
/// })?;
/// let view = Hello::view(built.bytes());
/// assert_eq!(view.reply_to().unwrap().name(), "Grace");
/// let owned = Hello::read(view);
/// assert_eq!(Hello::read(Hello::view(owned.to_linear()?.bytes())), owned);
/// # Ok::<(), trunkline_message::BuildError>(())
/// ```
pub trait Message: Default + Clone + Send + Sync + 'static {
    /// Reads a message where it lies.
    type View<'a>: Copy + From<View<'a>> + Into<View<'a>>;

    /// Builds a message in place.
    type Builder<'b, E: Extent + 'b>: From<Block<'b, E>>;

    /// Package included, without a leading dot.
    const FULL_NAME: &'static str;

    /// As [`Schema::fingerprint`](trunkline_schema::Schema::fingerprint) computes it.
    const FINGERPRINT: u64;

    /// Size of the message's block.
    const BLOCK_BYTES: u32;

    /// Writes all fields into an empty block.
    fn write<E: Extent>(&self, block: Block<'_, E>);

    /// Copies all fields out.
    fn read(view: Self::View<'_>) -> Self;

    /// The root message of an extent, header included.
    fn view(extent: &[u8]) -> Self::View<'_> {
        View::root(extent).into()
    }

    /// Builds a message of this type in an extent.
    ///
    /// # Errors
    /// [`BuildError`] if it does not fit or nests too deeply.
    fn build<E: Extent>(
        extent: E,
        fill: impl FnOnce(&mut Self::Builder<'_, E>),
    ) -> Result<Built<E>, BuildError> {
        let mut builder = Builder::new(extent, Self::BLOCK_BYTES);
        fill(&mut builder.root().into());
        builder.finish(Self::FINGERPRINT)
    }

    /// Writes the message into an extent.
    ///
    /// # Errors
    /// As [`Message::build`].
    fn write_to<E: Extent>(&self, extent: E) -> Result<Built<E>, BuildError> {
        let mut builder = Builder::new(extent, Self::BLOCK_BYTES);
        self.write(builder.root());
        builder.finish(Self::FINGERPRINT)
    }

    /// Writes the message into memory of its own.
    ///
    /// # Errors
    /// As [`Message::build`].
    fn to_linear(&self) -> Result<Built<AlignedBuf>, BuildError> {
        self.write_to(AlignedBuf::new())
    }
}
