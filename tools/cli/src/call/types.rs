//! Where the types of a call come from: files that were named, this program itself, or the one who is called.

use super::descriptors::{DescriptorError, Sources, split_name};
use super::reflect::{ReflectError, Reflection};
use super::way::Way;
use prost_reflect::DescriptorPool;

/// Why there are no types.
#[derive(Debug, thiserror::Error)]
pub enum TypesError {
    /// In the files.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// From the server.
    #[error(transparent)]
    Reflect(#[from] ReflectError),
    /// Not from this host's daemon, which may know where the service is without knowing its types.
    #[error("{0}; if another host serves it, name that host: --target HOST:PORT")]
    NotHere(Box<TypesError>),
    /// The name of a service stands where a method's is to be.
    #[error(
        "{0} is a service, and no method of it is named: write {0}/METHOD; `trunkline call list {0}` shows them"
    )]
    IsService(String),
}

/// The services there are, and their types if they had to be looked at.
pub struct Catalog {
    /// Full names.
    pub services: Vec<String>,
    /// Their types.
    pub pool: DescriptorPool,
}

/// The types a method needs: `package.Service/Method`, the package left out if one likes.
///
/// # Errors
/// [`TypesError`].
pub fn of_method(sources: &Sources, way: &Way, name: &str) -> Result<DescriptorPool, TypesError> {
    let (service, _) = split_name(name)?;
    if !sources.is_empty() {
        return Ok(sources.load()?);
    }
    if let Some(pool) = own(service) {
        return Ok(pool);
    }
    reflected(way, service, name).map_err(|error| match error {
        TypesError::Descriptor(DescriptorError::Service { .. })
        | TypesError::Reflect(ReflectError::Unknown { .. })
            if way.target.is_empty() =>
        {
            TypesError::NotHere(Box::new(error))
        }
        error => error,
    })
}

/// The types of the services of this name, from whoever is called.
fn reflected(way: &Way, service: &str, name: &str) -> Result<DescriptorPool, TypesError> {
    let mut reflection = Reflection::open(way)?;
    if reflection.services().iter().any(|known| known == name) {
        return Err(TypesError::IsService(name.to_owned()));
    }
    let fits = |known: &&String| *known == service || known.rsplit('.').next() == Some(service);
    let wanted: Vec<String> = reflection.services().iter().filter(fits).cloned().collect();
    if wanted.is_empty() && !service.contains('.') {
        let known = reflection.services().to_vec();
        return Err(DescriptorError::Service { wanted: service.to_owned(), known }.into());
    }
    // A server may serve what it does not list; it is asked by the name as it was written.
    let wanted = if wanted.is_empty() { vec![service.to_owned()] } else { wanted };
    for service in &wanted {
        reflection.get(service)?;
    }
    Ok(reflection.into_pool()?)
}

/// The types a symbol needs. Without one: every service, with its types if `whole`.
///
/// # Errors
/// [`TypesError`].
pub fn of_symbol(
    sources: &Sources,
    way: &Way,
    symbol: Option<&str>,
    whole: bool,
) -> Result<Catalog, TypesError> {
    let own = symbol.and_then(own).filter(|_| sources.is_empty());
    if let Some(pool) = own {
        return Ok(Catalog::of(pool));
    }
    if !sources.is_empty() {
        return Ok(Catalog::of(sources.load()?));
    }
    let mut reflection = Reflection::open(way)?;
    let services = reflection.services().to_vec();
    match symbol {
        Some(symbol) => reflection.get(symbol)?,
        None if whole => services.iter().try_for_each(|service| reflection.get(service))?,
        None => {}
    }
    Ok(Catalog { services, pool: reflection.into_pool()? })
}

impl Catalog {
    fn of(pool: DescriptorPool) -> Self {
        let services = pool.services().map(|service| service.full_name().to_owned()).collect();
        Self { services, pool }
    }
}

/// The host's own services are not reflected: only operators call them. This program knows them.
fn own(name: &str) -> Option<DescriptorPool> {
    let is_own = name.starts_with("trunkline.") || name == "Admin";
    is_own.then(|| DescriptorPool::decode(crate::admin::proto::FILE_DESCRIPTOR_SET).ok()).flatten()
}
