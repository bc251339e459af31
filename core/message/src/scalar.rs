//! The Rust types a scalar field may have.

/// A scalar as it lies in a slot or an array.
pub trait Scalar: sealed::Sealed + Copy + Default + 'static {
    /// Bytes of one value, and its alignment.
    const BYTES: u32;

    /// Writes the value at the start of `target`; nothing if it does not fit.
    #[doc(hidden)]
    fn store(self, target: &mut [u8]);
}

/// A scalar of which any bytes are a value: arrays of it are slices of the extent.
pub trait Blittable: Scalar + bytemuck::Pod {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! blittable {
    ($($type:ty)*) => { $(
        impl sealed::Sealed for $type {}
        impl Scalar for $type {
            const BYTES: u32 = size_of::<$type>() as u32;

            #[inline]
            fn store(self, target: &mut [u8]) {
                crate::bytes::write(target, 0, self.to_le_bytes());
            }
        }
        impl Blittable for $type {}
    )* };
}

blittable! { i32 u32 f32 i64 u64 f64 }

impl sealed::Sealed for bool {}

impl Scalar for bool {
    const BYTES: u32 = 1;

    #[inline]
    fn store(self, target: &mut [u8]) {
        crate::bytes::write(target, 0, [u8::from(self)]);
    }
}
